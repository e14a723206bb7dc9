"""The table of states: it is complete, and every event leads where it says."""

from collections.abc import Iterator
from itertools import product
from typing import Any, get_args

from agent_service.core.brief import Continuations
from agent_service.core.decide import TABLE
from agent_service.core.events import Event
from agent_service.core.waiting import Deciding, Planned, Waiting
from tests.core.cues import DEADLINE, FETCH, TOOLS, queued, started, too_early
from tests.core.script import Script
from tests.core.stories import words

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
MORE = f"max_steps=9 max_tokens=9000 deadline_at={DEADLINE.replace(hour=23).isoformat()}"
_ALWAYS = FETCH.commands[0].model_copy(update={"approve": "always"})
PAGE = FETCH.model_copy(update={"name": "page", "commands": (_ALWAYS,)})
"""A read that a person has to allow each time."""
BEGINS = started((*TOOLS, PAGE))
TWO = "frame ; many fetch fetch"
READ = "frame ; plan fetch ; return"
STRANGE = "frame ; plan browse ; return"
TO_WRITE = 'want ["p post", "l ledger"]'
MORE_READS = 'want ["f fetch"]'
STORIES = (
    "",
    "unavailable try_again",
    "unavailable hold",
    "frame",
    "frame ; unavailable try_again",
    "frame ; unavailable pause",
    "frame ; plan fetch",
    "frame ; plan fetch ; error upstream retry",
    TWO,
    f"{TWO} ; return step=2",
    f"{TWO} ; return step=2 ; error upstream retry",
    READ,
    f"{READ} ; unavailable try_again",
    f"{READ} ; go ; return",
    f"{READ} ; go ; return ; unavailable try_again",
    f"{READ} ; reflect done d1=step:1 d2=step:1 d3=step:1",
    "ask",
    "frame ; plan ledger ; error in_doubt",
    "frame ; plan ledger ; error configuration ; answer ; rest 600",
    STRANGE,
    f"{STRANGE} ; unavailable try_again",
    f"{STRANGE} ; go post",
    "frame ; plan page ; approve ; return ; go page",
    f"frame ; plan fetch ; {MORE_READS}",
    f"frame ; plan fetch ; {MORE_READS} ; error upstream retry",
    f"frame ; plan fetch ; {MORE_READS} ; return",
    f"{STRANGE} ; go ; {TO_WRITE}",
    f"{STRANGE} ; go ; {TO_WRITE} ; approve",
    f"{STRANGE} ; go post ; {MORE_READS} ; approve",
    'frame ; plan post ; want ["b browse"]',
    f"{TWO} ; {MORE_READS}",
    f"{TWO} ; {MORE_READS} ; return step=2 ; return",
    f"{TWO} ; {MORE_READS} ; return",
    "frame ; many fetch browse ; return step=2",
    f'{STRANGE} ; go ; want ["p post", "f fetch"]',
)
"""After the run has begun; before it has, every happening is tried too."""
HAPPENINGS = words(
    "wake ; start ; reserve 10 0.001 ; reserve 9000 90.0 ; frame ; garble ; garble call=99 ; plan fetch ;"
    "many fetch fetch ; go ; reflect done d1=step:1 d2=step:1 d3=step:1 ; reflect escalate ; unavailable try_again ;"
    "unavailable pause ; unavailable fail ; unavailable hold ; too-long ; return ; return step=7 ;"
    f"error upstream retry ; {MORE_READS} ; {TO_WRITE} ; error not_found ; error in_doubt ; cancel ; break ; still ;"
    f"early ; timer ; message hello ; resume ; signal reject ; raise {MORE} ; ask ; rest 600 ; go post ; approve ;"
    f'reject ; answer ; answer "go on" {MORE}'
)


def told(limits: dict[str, Any], story: str | None, *, late: bool) -> Script:
    """A run after `story`; `late`: its deadline has passed, and it has noticed if it could."""
    script = queued(**limits)
    for cue in () if story is None else (BEGINS, *words(story)):
        script = script >> cue
    return script.wait(seconds=LATE) >> too_early if late else script


def moves() -> Iterator[tuple[type[Waiting] | None, type[Event], type[Waiting] | None]]:
    """Every state with every event, in many ways, and the next state, or None if ignored."""
    for limits, story, late in product(LIMITS, (None, *STORIES), (False, True)):
        run = told(limits, story, late=late)
        for happening in HAPPENINGS:
            for wait_s in (0.0, LATE):
                script = run.branch().wait(seconds=wait_s)
                before = script.state.waiting
                event = happening(script)
                script = script >> event
                ignored = script.story[-1].transition.ignored
                yield type(before), type(event), None if ignored else type(script.state.waiting)


def test_the_table_has_every_event_and_every_state() -> None:
    assert set(TABLE) == {*EVENTS}
    assert {state for _, targets in TABLE.values() for state in targets} == {None, *STATES}


def test_an_event_leads_where_the_table_says_and_nowhere_else() -> None:
    seen = set(moves())
    assert {(before, event) for before, event, _ in seen} == set(product(STATES, EVENTS))
    led = {name(before, event, after) for before, event, after in seen if after}
    assert led == {
        name(state, event, to) for event, (_, row) in TABLE.items() for state in STATES for to in row.get(state, ())
    }


def name(*move: type[Any] | None) -> str:
    return " ".join(kind.__name__ for kind in move if kind)
