"""The table of states: it is complete, it says where every event leads, and it promises nothing that never happens."""

from collections.abc import Iterator
from itertools import product
from typing import Any, get_args

import pytest

from agent_service.core.brief import Continuations
from agent_service.core.decide import TABLE
from agent_service.core.events import CancelRequested, Event, TimerFired, ToolReturned, TurnBroke
from agent_service.core.phases import Unusable
from agent_service.core.waiting import Deciding, Planned, Waiting
from tests.core.cues import (
    DEADLINE,
    FETCH,
    PROOF,
    TOOLS,
    a_task,
    answer,
    approves,
    asks_a_person,
    breaks,
    cancel,
    due,
    errs,
    frames,
    garbles,
    goes_on,
    made,
    multi_step,
    plans,
    plans_several,
    queued,
    reflects,
    rejects,
    replies,
    reserves,
    resume,
    returns,
    signal,
    started,
    stood_still,
    too_early,
    too_long,
    unavailable,
    waits,
    wake,
)
from tests.core.script import Cue, Script

STATES = tuple(kind for kind in get_args(get_args(Waiting)[0]) if kind not in (Deciding, Planned))
EVENTS: tuple[type[Event], ...] = get_args(Event)

PAUSE = {"on_budget": "pause"}
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    PAUSE,
    {"max_steps": 1},
    {"max_steps": 1, **PAUSE},
    {"max_tokens": 300, **PAUSE},
    {"max_attempts": 1, "continuations": Continuations(max_plugin_total_time_ms=10**8)},
    {"deadline_named": True},
    {"deadline_named": True, **PAUSE},
    {"parallel_reads": 2},
    {"parallel_reads": 2, "max_attempts": 1, "max_tokens": 300, **PAUSE},
)
LATE = 3600.0
MORE: dict[str, Any] = {"max_steps": 9, "max_tokens": 9000, "deadline_at": DEADLINE.replace(hour=23)}
PLANS_POST, PLANS_PAGE = goes_on("post"), goes_on("page")
_ALWAYS = FETCH.commands[0].model_copy(update={"approve": "always"})
PAGE = FETCH.model_copy(update={"name": "page", "commands": (_ALWAYS,)})
"""A read that a person has to allow each time."""
BEGINS = started((*TOOLS, PAGE))
HELD = unavailable("hold")
AWAY, UPSTREAM = unavailable("try_again"), errs("upstream", retryable=True)
ASKS_MORE = returns("continuation", output={"continuation": multi_step(a_task("f", "fetch"))})
ASKS_TO_WRITE = returns("continuation", output={"continuation": multi_step(a_task("p", "post"), a_task("l", "ledger"))})
ASKS_BOTH = returns("continuation", output={"continuation": multi_step(a_task("p", "post"), a_task("f", "fetch"))})
ASKS_STRANGERS = returns("continuation", output={"continuation": multi_step(a_task("b", "browse"))})
STORIES: tuple[tuple[Cue, ...], ...] = (
    (),
    (BEGINS,),
    (BEGINS, AWAY),
    (BEGINS, HELD),
    (BEGINS, frames()),
    (BEGINS, frames(), AWAY),
    (BEGINS, frames(), unavailable("pause")),
    (BEGINS, frames(), plans()),
    (BEGINS, frames(), plans(), UPSTREAM),
    (BEGINS, frames(), plans_several("fetch", "fetch")),
    (BEGINS, frames(), plans_several("fetch", "fetch"), returns(step=2)),
    (BEGINS, frames(), plans_several("fetch", "fetch"), returns(step=2), UPSTREAM),
    (BEGINS, frames(), plans(), returns()),
    (BEGINS, frames(), plans(), returns(), AWAY),
    (BEGINS, frames(), plans(), returns(), goes_on(), returns()),
    (BEGINS, frames(), plans(), returns(), goes_on(), returns(), AWAY),
    (BEGINS, frames(), plans(), returns(), reflects("done", PROOF)),
    (BEGINS, asks_a_person()),
    (BEGINS, frames(), plans("ledger"), errs("in_doubt")),
    (BEGINS, frames(), plans("ledger"), errs("configuration"), answer(), waits()),
    (BEGINS, frames(), plans("browse"), returns()),
    (BEGINS, frames(), plans("browse"), returns(), AWAY),
    (BEGINS, frames(), plans("browse"), returns(), PLANS_POST),
    (BEGINS, frames(), plans("page"), approves(), returns(), PLANS_PAGE),
    (BEGINS, frames(), plans(), ASKS_MORE),
    (BEGINS, frames(), plans(), ASKS_MORE, UPSTREAM),
    (BEGINS, frames(), plans(), ASKS_MORE, returns()),
    (BEGINS, frames(), plans("browse"), returns(), goes_on(), ASKS_TO_WRITE),
    (BEGINS, frames(), plans("browse"), returns(), goes_on(), ASKS_TO_WRITE, approves()),
    (BEGINS, frames(), plans("browse"), returns(), goes_on("post"), ASKS_MORE, approves()),
    (BEGINS, frames(), plans("post"), ASKS_STRANGERS),
    (BEGINS, frames(), plans_several("fetch", "fetch"), ASKS_MORE),
    (BEGINS, frames(), plans_several("fetch", "fetch"), ASKS_MORE, returns(step=2), returns()),
    (BEGINS, frames(), plans_several("fetch", "fetch"), ASKS_MORE, returns()),
    (BEGINS, frames(), plans_several("fetch", "browse"), returns(step=2)),
    (BEGINS, frames(), plans("browse"), returns(), goes_on(), ASKS_BOTH),
)
HAPPENINGS: tuple[Cue, ...] = (
    wake(),
    started(),
    reserves(10, 0.001),
    reserves(9000, 90.0),
    frames(),
    garbles(),
    replies(Unusable(reason="not JSON"), call=99),
    plans(),
    plans_several("fetch", "fetch"),
    goes_on(),
    reflects("done", PROOF),
    reflects("escalate"),
    AWAY,
    unavailable("pause"),
    unavailable("fail"),
    HELD,
    too_long(),
    returns(),
    returns(step=7),
    UPSTREAM,
    ASKS_MORE,
    ASKS_TO_WRITE,
    errs("not_found"),
    errs("in_doubt"),
    cancel(),
    breaks(),
    stood_still(),
    too_early,
    lambda script: due(script) if script.state.due_at else too_early(script),
    signal("message", message="hello"),
    resume(),
    signal("reject"),
    signal("raise_budget", **MORE),
    asks_a_person(),
    waits(),
    PLANS_POST,
    approves(),
    rejects(),
    answer(),
    answer("go on", **MORE),
)


def told(limits: dict[str, Any], story: tuple[Cue, ...], *, late: bool) -> Script:
    """A run as far as `story` tells; `late`: its deadline has passed, and where it can, it noticed that."""
    script = queued(**limits)
    for cue in story:
        script = script >> cue
    return script.wait(seconds=LATE) >> too_early if late else script


def as_far_as(run: Script) -> Script:
    """Another run that has come as far."""
    other = Script()
    other.story, other.now = list(run.story), run.now
    return other


def moves() -> Iterator[tuple[type[Waiting] | None, type[Event], type[Waiting] | None]]:
    """Every state with every event, in many ways: where it led, or None where it was ignored."""
    for limits, story, late in product(LIMITS, STORIES, (False, True)):
        run = told(limits, story, late=late)
        for happening in HAPPENINGS:
            for wait_s in (0.0, LATE):
                script = as_far_as(run).wait(seconds=wait_s)
                before = script.state.waiting
                event = made(happening, script)
                script = script >> event
                ignored = script.story[-1].transition.ignored
                yield type(before), type(event), None if ignored else type(script.state.waiting)


def test_the_table_has_a_rule_for_every_event_in_every_state() -> None:
    assert {waiting: set(row) for waiting, row in TABLE.items()} == {
        waiting: set(EVENTS) for waiting in (None, *STATES)
    }


def test_an_event_leads_where_the_table_says_and_nowhere_else() -> None:
    seen = set(moves())
    assert {(before, event) for before, event, _ in seen} == set(product(STATES, EVENTS))
    led = {name(before, event, after) for before, event, after in seen if after}
    assert led == {name(state, event, to) for state in STATES for event, rule in TABLE[state].items() for to in rule.to}


@pytest.mark.parametrize("state", STATES)
def test_a_state_tells_of_every_event_that_moves_it_and_of_no_other(state: type[Waiting]) -> None:
    told = {event for event in EVENTS if f"`{event.__name__}" in (state.__doc__ or "").partition("Moved by:")[2]}
    moving = {event for event in EVENTS if set(TABLE[state][event].to) - {state} or event is ToolReturned}
    assert told | {TimerFired} == (moving | {TimerFired}) - {CancelRequested, TurnBroke}


def name(*move: type[Any] | None) -> str:
    return " ".join(kind.__name__ for kind in move if kind)
