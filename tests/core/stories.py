"""Random stories of a run: the awaited events, mixed with everything else that may come.

A move is a cue. `goes_on` brings the awaited event, and reserves money for a model that costs; ODD has the mishaps of a
state, worded as in a transcript or as in MOVES_BY_WORD; the rest comes at any time. Endings are rare, so that many
stories are long.
"""

import json
import re
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from agent_service.core import planning
from agent_service.core.brief import Continuations
from agent_service.core.events import ToolReturned
from agent_service.core.phases import Phase, Plan, Unusable
from agent_service.core.waiting import Acting, CallReserve, NeedsPerson, Status, Stop, Thinking
from tests.core import cues
from tests.core.cues import DEADLINE, due, framing, plan, queued, reflection, replies, returns, several
from tests.core.script import Cue, Script
from tests.core.words import WORDS, a_run_of, parsed, split

SAME = plan("fetch", url="same")

# What a run waits for


def goes_on(script: Script) -> Cue:
    """The event that the run waits for, with content that continues it."""
    is_to_be_paid = script.reserve is not None and script.state.active_call is not None and script.state.reserve is None
    return sets_aside if is_to_be_paid else GOES_ON.get(situation(script), timer)


def sets_aside(script: Script, *, by: int = 0) -> Cue:
    reserve = script.reserve or CallReserve(tokens=50, cost_usd=0.005)
    return cues.reserves(reserve.tokens, reserve.cost_usd, call=max(1, script.state.calls + by))


def situation(script: Script) -> str:
    match script.state.waiting:
        case Thinking(asking=asking, retry_at=None):
            return str(asking.phase)
        case Thinking():
            return "model_retry"
        case Acting() as acting:
            return _acting(acting, reads=len(script.state.plan.actions) if script.state.plan else 1)
        case NeedsPerson(ask=Stop(), held=Acting()):
            return "tool, paused"
        case NeedsPerson(ask=ask):
            return ask.kind
        case waiting:
            return waiting.kind


def _acting(acting: Acting, reads: int) -> str:
    if acting.graphs:
        return "tasks"
    if reads > 1:
        return "reads"
    (pending,) = acting.pendings
    if pending.retry_at:
        return "tool_retry"
    return "tool again" if pending.attempt > 1 else "tool"


def answers(script: Script, **reply: Any) -> Cue:
    asking, fused = script.state.open_call, script.state.brief.fused
    planned = SAME if is_stubborn(script) else a_good_plan(script)
    match asking.phase if asking else None:
        case Phase.FRAME:
            return replies(framing(), plan=planned if fused else None, **reply)
        case Phase.REFLECT:
            told = reflection("continue", facts=(f"learned by call {script.state.calls}",))
            return replies(told, plan=planned if fused else None, **reply)
        case Phase.VERIFY:
            return cues.finds("looked at", holds=script.state.calls % 3 > 0, **reply)
        case Phase.COMPACT:
            return cues.digests("what the older steps brought", **reply)
        case _:
            return replies(planned, **reply)


def a_good_plan(script: Script) -> Plan:
    """Reads and writes in turn, with arguments that try to override keys; several reads if allowed."""
    number = script.state.calls
    if number % 2 and planning.max_actions(script.state) > 1:
        return several(*["fetch"] * planning.max_actions(script.state), number=number, run_id="forged")
    return plan(("fetch", "save", "browse", "post")[number % 4], number=number, run_id="forged", STEP=9)


def is_stubborn(script: Script) -> bool:
    """True if the model planned `SAME`: it repeats that, with the same result."""
    return script.state.plan is not None and script.state.plan.action == SAME.action


def result(script: Script) -> Cue:
    return returns(output={"summary": "same"} if is_stubborn(script) else None)


def some_request(script: Script) -> Cue:
    """A result of a request that is out, newest first; or the next is sent."""
    sent = script.state.sent
    return returns(of=sent[-1]) if sent else timer


def timer(script: Script) -> Cue:
    return due(script) if script.state.due_at else cues.too_early(script)


def more_than_spent(script: Script) -> dict[str, Any]:
    """Constraints under which no budget is spent."""
    limits, spent = script.state.brief.limits, script.state.spent
    return {
        "max_steps": limits.max_steps + 1,
        "max_reframes": limits.max_reframes + 1,
        "max_tokens": 1000 + spent.tokens + spent.lost_tokens,
        "max_cost_usd": 1.0 + (spent.cost_usd or 0.0) + (spent.lost_cost_usd or 0.0),
        "deadline_at": max(script.now, limits.deadline_at) + timedelta(days=1),
    }


def reopens(script: Script) -> Cue:
    """An answer with larger budgets if the run can be reopened; else a late result."""
    if script.state.status is not Status.ESCALATED:
        return returns()
    return cues.answer("go on", **more_than_spent(script))


def word(text: str) -> Cue:
    """A move by its word in a transcript or in MOVES_BY_WORD; `late` comes an hour or two later."""
    if text.startswith("late "):
        return later(word(text.removeprefix("late ")), hours=1)
    name, plain, named = parsed(text)
    if name in MOVES_BY_WORD:
        return MOVES_BY_WORD[name]
    return WORDS[name](*plain, **named)


def words(line: str) -> list[Cue]:
    """Moves of a line, separated by `;`; `3 due` is three times as likely."""
    parts = [re.fullmatch(r"(?:(\d+) )?(.*)", part) for part in split(line.replace("\n", " "), ";")]
    return [word(part[2]) for part in parts if part for _ in range(int(part[1] or 1))]


def later(cue: Cue, **duration: float) -> Cue:
    return lambda script: script.wait(**duration).event(cue)


# What may come instead


def done(script: Script) -> Cue:
    good = [record.step for record in script.state.completed if record.status == "ok"]
    proof = {item.id: f"step:{good[-1]}" for item in script.state.done_items} if good else {}
    return replies(reflection("done", proof))


def again(script: Script) -> Cue:
    results = [change.event for change in script.story if isinstance(change.event, ToolReturned)]
    return results[-1] if results else returns()


def older_attempt(script: Script) -> Cue:
    attempt = script.state.pending.attempt if script.state.pending else 2
    return returns(attempt=max(1, attempt - 1))


def of_newest(script: Script, *, cue: Cue) -> Cue:
    event = script.event(cue)
    pending = script.state.pendings[-1] if script.state.pendings else None
    if pending is None or not isinstance(event, ToolReturned):
        return event
    named = {"step": pending.step, "tool": pending.action.tool, "attempt": pending.attempt}
    named |= {"task": pending.task or None, "round": pending.round or None}
    return replace(event, result=event.result.model_copy(update=named))


def nameless(script: Script) -> Cue:
    return returns(task=None, round=None, attempt=None, place=f"message {len(script.story)}")


def other_call(script: Script, *, by: int) -> Cue:
    return replies(plan(), call=max(1, script.state.calls + by))


def insists(script: Script) -> Cue:
    asking, planned = script.state.open_call, script.state.plan or plan("post")
    reflecting = asking is not None and asking.phase == "reflect"
    return replies(reflection("continue"), plan=planned) if reflecting else replies(planned)


MOVES_BY_WORD: dict[str, Cue] = {
    "again": again,
    "answers": answers,
    "approves-late": later(cues.approves(), hours=2),
    "done-well": done,
    "future": lambda script: returns(step=script.state.step + 1),
    "insist": insists,
    "last-fails": lambda script: cues.errs("upstream", "retry", step=script.state.step),
    "nameless": nameless,
    "older": older_attempt,
    "other-call": partial(other_call, by=-1),
    "next-call": partial(other_call, by=1),
    "reopen": reopens,
    "set-aside": sets_aside,
    "set-aside-before": partial(sets_aside, by=-1),
    "start": cues.started(),
    "timer": timer,
    "unheard": partial(answers, words=0),
    "unpriced": partial(answers, cost=None),
    "due": due,
}
GOES_ON: dict[str, Cue] = {
    "queued": MOVES_BY_WORD["start"],
    **dict.fromkeys(("frame", "plan", "reflect", "compact", "verify"), answers),
    **dict.fromkeys(("tool", "tool again", "tool, paused"), result),
    **dict.fromkeys(("reads", "tasks"), some_request),
    "approval": word("approve"),
    "question": word('answer "the new one"'),
    "stop": lambda script: cues.signal("raise_budget", **more_than_spent(script)),
    "ended": reopens,
}
"""Any other run waits for its timer."""

PLANS: tuple[Plan | Unusable, ...] = (
    *[SAME] * 2,
    plan(url="another"),
    *[plan("post")] * 2,
    plan("curl"),
    plan("fetch", "poll"),
    *[plan("helper")] * 2,
    several("fetch", "fetch"),
    several("fetch", "post"),
)
PLANNED, OPENING, ALONG = (
    [cue(planned) for planned in PLANS]
    for cue in (
        replies,
        lambda planned: replies(framing(), plan=planned),
        lambda planned: replies(reflection("continue"), plan=planned),
    )
)
"""A plan by itself, with a framing, and with a reflection."""
NO_ANSWER = words(
    "garble ; other-call ; next-call ; 2 unpriced ; unavailable try_again ; unavailable try_again retry_after_s=900 ;"
    "unavailable pause ; too-long ; 6 set-aside ; set-aside-before"
)
ENDING = words("2 unavailable fail ; unavailable escalate ; cancel")
HELLO = "message hello"
WISHES = words(
    'want more ; want ["a", "b browse", "w post a", "s save b", "z - w"] ; want ["w post", "b browse"] ;'
    'want ["l ledger"]'
)


def a_wish(chance: Random) -> Cue:
    """A tool asks for up to eight tasks of any tools, with any dependencies."""
    names = [f"t{number}" for number in range(chance.randint(2, 8))]
    needs = {name: [other for other in names[:place] if chance.random() < 0.3] for place, name in enumerate(names)}
    tools = {name: chance.choice(("-", "fetch", "save", "browse", "post")) for name in names}
    wish = json.dumps([f"{name} {tools[name]} {','.join(needs[name])}" for name in chance.sample(names, len(names))])
    return word(f"want {wish}")


GRAPHS = [a_wish(Random(number)) for number in range(6)]  # noqa: S311 - it makes stories, no secrets
BAD_WISHES = words('return continuation output={"query": "more"} ; want ["a - b", "b - a"] ; want ["c curl"]')
TURNS_TO_PEOPLE = words("4 insist ; 4 ask ; 4 rest 600 ; plan browse ; unheard")
UPSTREAM = word("error upstream retry")
NEWEST = [partial(of_newest, cue=cue) for cue in (word("return"), UPSTREAM, *WISHES[:2])]
LATER = f"raise deadline_at={DEADLINE.replace(hour=23).isoformat()}"

ODD: dict[str, list[Cue]] = {
    "queued": words("late start ; cancel ; return ; late timer ; raise max_steps=3 ; plan ; timer"),
    "frame": [
        *words('frame "only one" ; reflect done ; digest forged'),
        *NO_ANSWER,
        *words('frame tokens=900 cost=0.9 ; 2 frame "only one" plan=fetch'),
        *OPENING,
        *words("frame plan=cut ; frame ; refuse cyber ; 3 ask ; unheard"),
    ],
    "plan": [
        *PLANNED,
        *NO_ANSWER,
        *ENDING,
        *words("reflect done ; reflect escalate ; 3 digest forged"),
        *TURNS_TO_PEOPLE,
        *words("3 unheard"),
    ],
    "reflect": [
        *ALONG,
        *NO_ANSWER,
        *words("4 done-well ; 4 reflect done d1=step:1 d2=step:77 d3=artifacts/none ; 6 reflect reframe"),
        *words("reflect continue d2=step:1 d9=step:1 ; reflect continue plan=unusable ; reflect escalate"),
        *words("2 digest forged ; refuse cyber"),
        *TURNS_TO_PEOPLE,
        *words("2 reflect continue plan=browse ; 3 reflect done words=0"),
        *words("reflect escalate words=0 ; reflect reframe words=0"),
    ],
    "compact": [
        *NO_ANSWER,
        *words("4 garble ; reflect done ; 4 too-long ; 4 refuse cyber ; unavailable fail"),
    ],
    "verify": [
        *NO_ANSWER,
        *words('4 find "not shown" holds=false doubted=["d1", "d9"] ; 3 message "not yet"'),
        *ENDING,
        *words("reflect done ; garble ; late timer ; refuse cyber"),
    ],
    "model_retry": words(
        "answers ; cancel ; unavailable try_again ; late timer ; other-call ; next-call ; 2 set-aside ; 4 late timer ;"
        "break ; return step=7"
    ),
    "tool": [
        *words("3 late timer ; 10 error upstream retry ; 3 due ; 2 error not_found"),
        *WISHES * 3,
        *GRAPHS,
        *BAD_WISHES,
        *words('return output={"artifact_path": "artifacts/page.html"} ; error configuration ; error in_doubt'),
        *words("2 future ; return attempt=9 ; return attempt=null ; unreadable ; unreadable step=7"),
        *words("return tool=someone ; cancel ; set-aside"),
    ],
    "tool again": words(
        "3 older ; 2 error upstream retry ; due ; unreadable ; return attempt=null ; return attempt=9 ;"
        "error not_found ; cancel"
    ),
    "tool_retry": words("return ; 2 late timer ; 3 older ; 2 cancel ; early ; late timer ; timer"),
    "reads": [
        *words("8 error upstream retry"),
        *WISHES,
        *words(
            "last-fails ; 8 due ; 2 late timer ; error not_found ; error configuration ; 2 future ; 2 older ; again"
        ),
        *words("return attempt=9 ; return attempt=null ; unreadable ; return tool=someone ; cancel ; set-aside ; plan"),
        *words("unavailable try_again"),
    ],
    "tasks": [
        *words("3 error upstream retry"),
        *WISHES,
        *BAD_WISHES,
        *words("4 due ; 2 late timer"),
        *NEWEST,
        *words("2 error not_found ; error in_doubt ; error configuration ; future ; 2 older ; 3 again"),
        *words("return attempt=9 ; return attempt=null place=4 ; nameless ; return task=nobody round=1 ; unreadable"),
        *words("return tool=someone ; cancel ; set-aside ; plan ; unavailable try_again"),
        *words('2 message "stop writing"'),
    ],
    "tool, paused": [
        *WISHES,
        *words(f"4 error upstream retry ; 8 {LATER} ; error in_doubt ; cancel ; resume ; set-aside"),
    ],
    "sleeping": words(
        f"3 {HELLO} ; 2 late late {HELLO} ; resume ; cancel ; return step=7 ; late timer ; 3 due ; early"
    ),
    "approval": words(
        f'2 reject ; 3 due ; 2 {HELLO} ; 2 message "not that" ; approve arguments_hash={"a" * 32} ; approves-late ;'
        "answer ; return step=9 ; cancel ; resume ; raise max_steps=3"
    ),
    "question": words(f"2 {HELLO} ; 4 due ; late late answer ; approve ; answer null ; return step=9 ; cancel"),
    "stop": words(
        "2 return ; error upstream retry ; resume ; signal approve ; signal reject ; answers ; timer ; cancel ;"
        "set-aside ; 3 late late resume ; answer ; reopen"
    ),
    "ended": words(
        "return ; return step=1 ; again ; answers ; cancel ; resume ; timer ; start ; set-aside ; 2 answer ;"
        f'answer "it ran" outcome=ran ; answer no outcome=did_not_run ; {HELLO}'
    ),
}


def odd(script: Script, *, number: int) -> Cue:
    moves = ODD[situation(script)]
    return moves[number % len(moves)]


MOVES: list[Cue] = [
    *[goes_on] * 130,
    *[later(goes_on, minutes=1)] * 10,
    *(partial(odd, number=number) for number in range(max(map(len, ODD.values())))),
    *words("again ; return step=1 ; early"),
    *[later(goes_on, minutes=20)] * 3,
    *words(f"late timer ; {HELLO} ; 2 {HELLO} signal_id=same ; raise max_steps=3 max_tokens=600 ; {LATER} ; resume"),
    *words("start ; wake"),
]

# Stories

WAKES: dict[str, list[Any]] = {
    "max_steps": [12, 6, 6, 4, 2, 1],
    "max_reframes": [2, 1, 0, 0],
    "max_attempts": [3, 3, 2, 1],
    "max_attempts_of_run": [40, 40, 40, 4, 2],
    "max_repairs": [3, 2, 1, 0],
    "max_refused_done": [2, 1, 0],
    "max_tokens": [None, None, 1500, 700, 300],
    "max_cost_usd": [None, None, 0.5, 0.05],
    "on_budget": ["escalate", "pause"],
    "fused": [True, False],
    "max_depth": [0, 0, 1],
    "parallel_reads": [1, 1, 2, 3],
    "max_questions": [5, 5, 1],
    "deadline_named": [False, False, True],
    "on_expiry": ["reject", "escalate"],
    "approval_s": [86_400.0, 600.0],
    "max_notes": [48_000, 1000, 100],
    "continuations": [
        Continuations(retrieval_tool="fetch"),
        Continuations(retrieval_tool="fetch", max_plugin_total_time_ms=10**8),
        Continuations(retrieval_tool="browse", max_plugin_total_time_ms=10**7, parallel=2, parallel_per_tool=1),
        Continuations(retrieval_tool="fetch", max_plugin_continuations=1, max_tasks=3),
    ],
    "steps": [0, 0, 0, 7],
    "reserve": [None, None, CallReserve(tokens=200, cost_usd=0.02), CallReserve(tokens=300, cost_usd=None)],
}
LONG: dict[str, Any] = {"max_steps": 12, "max_attempts_of_run": 40, "max_tokens": None, "max_cost_usd": None}
"""Limits of a run that has steps behind it."""
LENGTH = 50


def story(number: int) -> Script:
    """Story `number`: always the same."""
    chance = Random(number)  # noqa: S311 - it makes stories, no secrets
    details = {name: chance.choice(choices) for name, choices in WAKES.items()}
    return play(details | {"verify": number % 2 == 1}, chance.choices(MOVES, k=LENGTH))


def play(details: dict[str, Any], moves: list[Cue]) -> Script:
    reserve, steps = details["reserve"], details["steps"]
    given = {name: value for name, value in details.items() if name not in ("reserve", "steps")}
    script = a_run_of(steps, **(given | LONG)) if steps else queued(**given)
    script.reserve = reserve
    for move in moves:
        script = script >> move
    return script


def a_gathering(moves: list[Cue]) -> Script:
    """A run whose first step has sub-requests, without protocol violations."""
    script = queued(continuations=WAKES["continuations"][0], max_attempts_of_run=1000) >> cues.started()
    script = script >> cues.frames() >> cues.plans()
    for move in moves:
        moved = script.branch() if script.state.completed or script.state.final else script.branch() >> move
        script = script if moved.state.ending_class == "protocol_violation" else moved
    return script


OF_A_GATHERING: list[Cue] = [*[some_request] * 8, *words("again ; error not_found"), *NEWEST, UPSTREAM, timer]


def gathered(number: int) -> Script:
    chance = Random(number)  # noqa: S311 - it makes stories, no secrets
    return a_gathering([chance.choice([*GRAPHS, *WISHES]), *chance.choices(OF_A_GATHERING, k=LENGTH)])
