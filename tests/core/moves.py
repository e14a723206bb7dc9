"""The moves of random stories: what a run waits for, and everything that may come instead of it.

A move is a cue. `goes_on` brings what the run waits for; `odd` brings something that can go wrong where the run
stands; the rest comes at any time. What ends a run is rare, so that many stories are long.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agent_service.core.events import Event, ToolReturned
from agent_service.core.phases import Digest, Framing, Plan, Reflection, Unusable, Verification
from tests.core.cues import (
    DEADLINE,
    a_task,
    breaks,
    cancel,
    digests,
    due,
    errs,
    frames,
    framing,
    garbled,
    made,
    multi_step,
    opens,
    plan,
    reflection,
    refuses,
    replies,
    resume,
    returns,
    several,
    signal,
    started,
    too_early,
    too_long,
    unavailable,
    wake,
)
from tests.core.going_on import SAME, Move, answers, goes_on, sets_aside, situation, timer
from tests.core.people_moves import ODD_WITH_PEOPLE
from tests.core.script import Cue, Script


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


def of_the_last(script: Script, *, cue: Callable[..., Cue]) -> Event:
    """What comes of the last of several reads."""
    return made(cue(step=script.state.step), script)


def some_other(script: Script, *, cue: Cue) -> Event:
    """What comes of the newest request that is out, and not of the oldest."""
    event = made(cue, script)
    pending = script.state.pendings[-1] if script.state.pendings else None
    if pending is None or not isinstance(event, ToolReturned):
        return event
    named = {"step": pending.step, "tool": pending.action.tool, "attempt": pending.attempt}
    named |= {"task": pending.task or None, "round": pending.round or None}
    return replace(event, result=event.result.model_copy(update=named))


def nameless(script: Script) -> Event:
    """A result that says no more than its step and tool."""
    return made(returns(task=None, round=None, attempt=None, place=f"message {len(script.story)}"), script)


def other_call(script: Script, *, by: int) -> Event:
    return made(replies(plan(), call=max(1, script.state.calls + by)), script)


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
    too_long(),
    *[sets_aside] * 6,
    partial(sets_aside, by=-1),
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
    several("fetch", "fetch"),
    several("fetch", "post"),
)
BADLY_FRAMED: tuple[Framing | Reflection | Digest, ...] = (
    framing("only one"),
    reflection("done"),
    Digest(memory=("forged",)),
)

RETRIEVES = {"action": "retrieve", "query": "more"}
GRAPH = multi_step(
    a_task("a"),
    a_task("b", "browse"),
    a_task("w", "post", ("a",)),
    a_task("s", "save", ("b",)),
    a_task("z", after=("w",)),
)
WISHES: list[Cue] = [
    returns("continuation", output={"continuation": wish})
    for wish in (
        RETRIEVES,
        GRAPH,
        multi_step(a_task("w", "post"), a_task("b", "browse")),
        multi_step(a_task("l", "ledger")),
    )
]
"""What a tool may ask for before it answers, with reads, writes and what strangers wrote among it."""
BAD_WISHES: list[Cue] = [
    returns("continuation", output={"query": "more"}),
    returns("continuation", output={"continuation": multi_step(a_task("a", after=("b",)), a_task("b", after=("a",)))}),
    returns("continuation", output={"continuation": multi_step(a_task("c", "curl"))}),
]

ODD: dict[str, list[Cue]] = {
    "queued": [
        after(partial(made, started()), hours=1),
        cancel(),
        returns(),
        after(timer, hours=1),
        signal("raise_budget", max_steps=3),
        replies(plan()),
        timer,
    ],
    "frame": [
        *map(replies, BADLY_FRAMED),
        *NO_ANSWER,
        replies(framing(), tokens=900, cost=0.9),
        *[opens(plan(), "only one")] * 2,
        *map(opens, PLANS),
        opens(Unusable(reason="no such command", cut=True)),
        frames(),
        refuses(),
    ],
    "plan": [
        *map(replies, PLANS),
        *NO_ANSWER,
        *ENDING,
        replies(reflection("done")),
        replies(reflection("escalate")),
        *[digests("forged")] * 3,
    ],
    "reflect": [
        *map(at_once, PLANS),
        *NO_ANSWER,
        *[done] * 4,
        *[replies(reflection("done", {"d1": "step:1", "d2": "step:77", "d3": "artifacts/none"}))] * 4,
        *[replies(reflection("reframe"))] * 6,
        replies(reflection("continue", {"d2": "step:1", "d9": "step:1"})),
        at_once(Unusable(reason="two actions")),
        replies(reflection("escalate")),
        *[digests("forged")] * 2,
        refuses(),
    ],
    "compact": [
        *NO_ANSWER,
        *[replies(Unusable(reason="not JSON"))] * 4,
        replies(reflection("done")),
        *[too_long()] * 4,
        *[refuses()] * 4,
        unavailable("fail"),
    ],
    "verify": [
        *NO_ANSWER,
        *[replies(Verification(holds=False, reason="not shown", doubted=("d1", "d9")))] * 4,
        *[signal("message", message="not yet")] * 3,
        *ENDING,
        replies(reflection("done")),
        replies(Unusable(reason="not JSON")),
        after(timer, hours=1),
        refuses(),
    ],
    "model_retry": [
        answers,
        cancel(),
        unavailable("try_again"),
        after(timer, hours=1),
        *OTHER_CALLS,
        *[sets_aside] * 2,
        *[after(timer, hours=1)] * 4,
        breaks(),
        returns(step=7),
    ],
    "tool": [
        *[after(timer, hours=1)] * 3,
        *[UPSTREAM] * 10,
        *[due] * 3,
        *[errs("not_found")] * 2,
        *WISHES * 3,
        *BAD_WISHES,
        returns(output={"artifact_path": "artifacts/page.html"}),
        errs("configuration"),
        errs("in_doubt"),
        *[future_step] * 2,
        returns(attempt=9),
        returns(attempt=None),
        garbled(),
        garbled(step=7),
        returns(tool="someone"),
        cancel(),
        sets_aside,
    ],
    "tool again": [
        *[older_attempt] * 3,
        *[UPSTREAM] * 2,
        due,
        garbled(),
        returns(attempt=None),
        returns(attempt=9),
        errs("not_found"),
        cancel(),
    ],
    "tool_retry": [
        returns(),
        after(timer, hours=1),
        after(timer, hours=1),
        *[older_attempt] * 3,
        cancel(),
        cancel(),
        too_early,
        after(timer, hours=1),
        timer,
    ],
    "for_reads": [
        *[UPSTREAM] * 8,
        *WISHES,
        partial(of_the_last, cue=partial(errs, "upstream", retryable=True)),
        *[due] * 8,
        *[after(timer, hours=1)] * 2,
        errs("not_found"),
        errs("configuration"),
        *[future_step] * 2,
        *[older_attempt] * 2,
        again,
        returns(attempt=9),
        returns(attempt=None),
        garbled(),
        returns(tool="someone"),
        cancel(),
        sets_aside,
        replies(plan()),
        unavailable("try_again"),
    ],
    "for_evidence": [
        *[UPSTREAM] * 3,
        *WISHES,
        *BAD_WISHES,
        *[due] * 4,
        *[after(timer, hours=1)] * 2,
        *[partial(some_other, cue=cue) for cue in (returns(), UPSTREAM, *WISHES[:2])],
        errs("not_found"),
        errs("not_found"),
        errs("in_doubt"),
        errs("configuration"),
        future_step,
        *[older_attempt] * 2,
        *[again] * 3,
        returns(attempt=9),
        returns(attempt=None, place="4"),
        nameless,
        returns(task="nobody", round=1),
        garbled(),
        returns(tool="someone"),
        cancel(),
        sets_aside,
        replies(plan()),
        unavailable("try_again"),
        *[signal("message", message="stop writing")] * 2,
    ],
    "tool, paused": [
        *WISHES,
        *[UPSTREAM] * 4,
        *[signal("raise_budget", deadline_at=DEADLINE.replace(hour=23))] * 8,
        errs("in_doubt"),
        cancel(),
        resume(),
        sets_aside,
    ],
    "for_person": [
        *[returns()] * 2,
        UPSTREAM,
        resume(),
        signal("approve"),
        signal("reject"),
        answers,
        timer,
        cancel(),
        sets_aside,
    ],
    "ended": [returns(), returns(step=1), again, answers, cancel(), resume(), timer, started(), sets_aside],
}
"""What can go wrong, by where the run stands."""
AT_ANY_TIME: list[Cue] = [
    again,
    returns(step=1),
    too_early,
    *[after(goes_on, minutes=20)] * 3,
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


def odd_in(where: str) -> list[Cue]:
    return [*ODD.get(where, ()), *ODD_WITH_PEOPLE.get(where, ())]


def odd(script: Script, *, number: int) -> Event:
    """One of the things that can go wrong where the run stands."""
    cues = odd_in(situation(script))
    return made(cues[number % len(cues)], script)


MOVES: list[Move] = [
    *[goes_on] * 130,
    *[after(goes_on, minutes=1)] * 10,
    *(partial(odd, number=number) for number in range(max(len(odd_in(where)) for where in ODD))),
    *(partial(made, cue) for cue in AT_ANY_TIME),
]
