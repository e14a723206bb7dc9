"""Random stories of a run: what it waits for, mixed with everything that may come instead of it.

A move is a cue. `goes_on` brings what the run waits for; `odd` brings something that can go wrong where the run
stands; the rest comes at any time. What ends a run is rare, so that many stories are long.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from hypothesis import strategies as st

from agent_service.core.events import Event, ToolReturned
from agent_service.core.phases import Framing, Phase, Plan, Reflection, Unusable
from agent_service.core.state import FINAL, Status
from tests.core.cues import (
    DEADLINE,
    cancel,
    due,
    errs,
    framing,
    plan,
    queued,
    reflection,
    replies,
    resume,
    returns,
    signal,
    started,
    too_early,
    unavailable,
    wake,
)
from tests.core.script import Cue, Script

Move = Callable[[Script], Event]

SAME = plan("fetch", url="same")


def made(cue: Cue, script: Script) -> Event:
    return cue(script) if callable(cue) else cue


# What the run waits for


def goes_on(script: Script) -> Event:
    """The event that the run waits for, with the content that lets it go on."""
    return made(GOES_ON[situation(script)], script)


def situation(script: Script) -> str:
    state = script.state
    if state.status in FINAL:
        return "final"
    if state.status is not Status.RUNNING:
        return str(state.status)
    if state.asking:
        return "model away" if state.asking.retry_at else str(state.asking.phase)
    if state.pending and state.pending.retry_at:
        return "retry"
    return "tool again" if state.pending and state.pending.attempt > 1 else "tool"


def answers(script: Script, **reply: Any) -> Event:
    """A good answer to the question that is asked."""
    asking, planned = script.state.asking, SAME if is_stubborn(script) else a_good_plan(script.state.calls)
    match asking.phase if asking else None:
        case Phase.FRAME:
            return made(replies(framing(), **reply), script)
        case Phase.REFLECT:
            fused = script.state.brief.fused
            return made(replies(reflection("continue"), plan=planned if fused else None, **reply), script)
        case _:
            return made(replies(planned, **reply), script)


def a_good_plan(number: int) -> Plan:
    """Reading and writing by turns, with arguments that would like to be ours."""
    return plan(("fetch", "save", "fetch", "post")[number % 4], number=number, run_id="forged", STEP=9)


def is_stubborn(script: Script) -> bool:
    """Whether the model planned `SAME`: it does so again then, and the result is the same."""
    return script.state.plan is not None and script.state.plan.action == SAME.action


def result(script: Script) -> Event:
    return made(returns(output={"summary": "same"} if is_stubborn(script) else None), script)


def more_of_everything(script: Script) -> Event:
    limits = script.state.brief.limits
    raised = signal(
        "raise_budget",
        max_steps=limits.max_steps + 1,
        max_reframes=limits.max_reframes + 1,
        max_tokens=1000 + script.state.spent.tokens,
        max_cost_usd=1.0 + (script.state.spent.cost_usd or 0.0),
        deadline_at=max(script.now, limits.deadline_at).replace(year=2027),
    )
    return made(raised, script)


GOES_ON: dict[str, Cue] = {
    "queued": started(),
    "frame": answers,
    "plan": answers,
    "reflect": answers,
    "model away": due,
    "tool": result,
    "tool again": result,
    "retry": due,
    "paused": more_of_everything,
    "final": returns(),
}

# What else may come


def done(script: Script) -> Event:
    """The model claims to be done, with the newest good step as the proof of everything."""
    good = [record.step for record in script.state.completed if record.status == "ok"]
    proof = {item.id: f"step:{good[-1]}" for item in script.state.done_items} if good else {}
    return made(replies(reflection("done", proof)), script)


def again(script: Script) -> Event:
    """The newest result, delivered once more."""
    results = [moment.event for moment in script.story if isinstance(moment.event, ToolReturned)]
    return results[-1] if results else made(returns(), script)


def older_attempt(script: Script) -> Event:
    attempt = script.state.pending.attempt if script.state.pending else 2
    return made(returns(attempt=max(1, attempt - 1)), script)


def future_step(script: Script) -> Event:
    return made(returns(step=script.state.step + 1), script)


def other_call(script: Script, *, by: int) -> Event:
    return made(replies(plan(), call=max(1, script.state.calls + by)), script)


def timer(script: Script) -> Event:
    return due(script) if script.state.due_at else too_early(script)


def after(cue: Move, **duration: float) -> Move:
    return lambda script: cue(script.wait(**duration))


def at_once(planned: Plan | Unusable) -> Cue:
    """A reflection that brings `planned` along."""
    return replies(reflection("continue"), plan=planned)


UPSTREAM = errs("upstream", retryable=True)
OTHER_CALLS: list[Cue] = [partial(other_call, by=-1), partial(other_call, by=1)]
ENDING: list[Cue] = [unavailable("fail"), unavailable("fail"), unavailable("escalate"), cancel()]
NO_ANSWER: list[Cue] = [
    replies(Unusable(reason="not JSON")),
    *OTHER_CALLS,
    partial(answers, cost=None),
    partial(answers, cost=None),
    unavailable("try_again"),
    unavailable("try_again", retry_after_s=900.0),
    unavailable("pause"),
]
PLANS: tuple[Plan | Unusable, ...] = (
    SAME,
    SAME,
    plan(url="another"),
    plan("post"),
    plan("post"),
    plan("curl"),
    plan("fetch", "poll"),
    plan("helper"),
    plan("helper"),
)
BADLY_FRAMED: tuple[Framing | Reflection, ...] = (framing("only one"), reflection("done"))

ODD: dict[str, list[Cue]] = {
    "queued": [cancel(), returns(), after(timer, hours=1), signal("raise_budget", max_steps=3), replies(plan()), timer],
    "frame": [*map(replies, BADLY_FRAMED), *NO_ANSWER, replies(framing(), tokens=900, cost=0.9)],
    "plan": [*map(replies, PLANS), *NO_ANSWER, *ENDING, replies(reflection("done"))],
    "reflect": [
        *map(at_once, PLANS),
        *NO_ANSWER,
        *[done] * 4,
        *[replies(reflection("done", {"d1": "step:1", "d2": "step:77", "d3": "artifacts/none"}))] * 4,
        *[replies(reflection("reframe"))] * 6,
        replies(reflection("continue", {"d2": "step:1", "d9": "step:1"})),
        at_once(Unusable(reason="two actions")),
        replies(reflection("escalate")),
    ],
    "model away": [answers, cancel(), unavailable("try_again"), after(timer, hours=1), *OTHER_CALLS],
    "tool": [
        *[UPSTREAM] * 10,
        *[due] * 3,
        *[errs("not_found")] * 2,
        returns("continuation", output={"query": "more"}),
        returns(output={"artifact_path": "artifacts/page.html"}),
        errs("configuration"),
        errs("in_doubt"),
        *[future_step] * 2,
        returns(attempt=9),
        returns(tool="someone"),
        cancel(),
    ],
    "tool again": [*[older_attempt] * 3, *[UPSTREAM] * 2, due, returns(attempt=9), errs("not_found"), cancel()],
    "retry": [returns(), *[older_attempt] * 3, cancel(), cancel(), too_early, after(timer, hours=1), timer],
    "paused": [returns(), returns(), UPSTREAM, resume(), signal("approve"), signal("reject"), answers, timer, cancel()],
    "final": [returns(), returns(step=1), again, answers, cancel(), resume(), timer, started()],
}
"""What can go wrong, by where the run stands."""
AT_ANY_TIME: list[Cue] = [
    again,
    returns(step=1),
    too_early,
    after(goes_on, minutes=20),
    after(timer, hours=1),
    signal("message", message="hello"),
    signal("message", signal_id="same", message="hello"),
    signal("message", signal_id="same", message="hello"),
    signal("raise_budget", max_steps=3, max_tokens=600),
    signal("raise_budget", deadline_at=DEADLINE.replace(hour=23)),
    resume(),
    started(),
    wake(),
]


def odd(script: Script, *, number: int) -> Event:
    """One of the things that can go wrong where the run stands."""
    cues = ODD[situation(script)]
    return made(cues[number % len(cues)], script)


MOVES: list[Move] = [
    *[goes_on] * 130,
    *[after(goes_on, minutes=1)] * 10,
    *(partial(odd, number=number) for number in range(36)),
    *(partial(made, cue) for cue in AT_ANY_TIME),
]

# Stories

WAKES: dict[str, list[Any]] = {
    "max_steps": [6, 6, 4, 2, 1],
    "max_reframes": [2, 1, 0, 0],
    "max_attempts": [3, 3, 2, 1],
    "max_attempts_of_run": [40, 40, 40, 4, 2],
    "max_repairs": [3, 2, 1, 0],
    "max_refused_done": [2, 1, 0],
    "max_tokens": [None, None, None, 1500, 300],
    "max_cost_usd": [None, None, 0.5, 0.05],
    "on_budget": ["escalate", "pause"],
    "fused": [True, False],
    "max_depth": [0, 0, 1],
}
LENGTH = 50


def play(details: dict[str, Any], moves: list[Move]) -> Script:
    """The story of a run that is woken with `details` and then meets `moves`."""
    script = queued(**details)
    for move in moves:
        script = script >> move
    return script


def told(number: int) -> Script:
    """Story `number`: always the same one, and as unlike the others as chance makes it."""
    chance = Random(number)  # noqa: S311 - it makes stories, no secrets
    details = {name: chance.choice(choices) for name, choices in WAKES.items()}
    return play(details, chance.choices(MOVES, k=LENGTH))


STORIES = st.builds(
    lambda details, moves, length: play(details, moves[:length]),
    st.fixed_dictionaries({name: st.sampled_from(choices) for name, choices in WAKES.items()}),
    st.lists(st.sampled_from(MOVES), min_size=LENGTH, max_size=LENGTH),
    st.sampled_from((*range(12), *(LENGTH,) * 60)),
)
"""Stories to search for one that breaks a rule: mostly long, and yet a failure is shown by the shortest that has it."""
