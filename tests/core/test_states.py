"""The table of states: it is complete, and every event leads where it says."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from agent_service.core.decide import TABLE
from agent_service.core.events import Event
from agent_service.core.waiting import Waiting
from tests.core.cues import DEADLINE, too_early
from tests.core.script import Script
from tests.core.stories import story, words
from tests.core.words import run_at
from tests.states import EVENTS, STATES

LATE = 3600.0
MORE = f"max_steps=9 max_tokens=9000 deadline_at={DEADLINE.replace(hour=23).isoformat()}"
TO_WRITE = 'want ["p post", "l ledger"]'
MORE_READS = 'want ["f fetch"]'
ASKED_BY_A_STRANGER = f"waiting browse ; return ; go ; {TO_WRITE}"
RUNS = (
    "queued",
    "queued on_budget=pause",
    "framing",
    "framing deadline_named=true ; ask",
    "planning on_budget=pause ; unavailable try_again",
    "planning parallel_reads=2 ; many fetch browse ; return step=2",
    "waiting ledger ; error configuration ; answer ; rest 600",
    "waiting ledger on_budget=pause ; error configuration ; answer ; rest 600",
    f"waiting on_budget=pause ; {MORE_READS}",
    "waiting browse ; return ; go post",
    ASKED_BY_A_STRANGER,
    ASKED_BY_A_STRANGER.replace("browse", "browse deadline_named=true"),
    "waiting page max_steps=1 ; approve ; return ; go page",
)
"""With HAPPENINGS they reach all that the table has. A person has to allow each read of a `page`."""
STORIES = 200
HAPPENINGS = words(
    "wake ; start ; reserve 10 0.001 ; reserve 9000 90.0 ; frame ; garble ; garble call=99 ; plan fetch ;"
    "many fetch fetch ; go ; reflect done d1=step:1 d2=step:1 d3=step:1 ; reflect escalate ; unavailable try_again ;"
    "unavailable pause ; unavailable fail ; unavailable hold ; too-long ; return ; return step=7 ;"
    f"error upstream retry ; {MORE_READS} ; {TO_WRITE} ; error not_found ; error in_doubt ; cancel ; break ; still ;"
    f"early ; timer ; message hello ; resume ; signal reject ; raise {MORE} ; ask ; rest 600 ; go post ; approve ;"
    f'reject ; answer ; answer "go on" {MORE}'
)


def runs() -> Iterator[Script]:
    """Runs in every state, also after their deadline, and each of some random stories up to one of its moments."""
    for line in RUNS:
        run = run_at(f"offer page approve=always ; run {line}")
        yield from (run, run.branch().wait(seconds=LATE) >> too_early)
    for number, run in ((number, story(number)) for number in range(STORIES)):
        del run.story[number % len(run.story) + 1 :]
        run.now = run.story[-1].event.at
        yield run


def moves() -> Iterator[tuple[type[Waiting], type[Event], type[Waiting] | None]]:
    """Every state with every event, in many ways, and the next state, or None if ignored."""
    for run, happening, wait_s in product(runs(), HAPPENINGS, (0.0, LATE)):
        script = run.branch().wait(seconds=wait_s)
        before = script.state.waiting
        change = (script >> happening).story[-1]
        yield type(before), type(change.event), None if change.transition.ignored else type(script.state.waiting)


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
