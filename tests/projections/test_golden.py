"""Golden files of each ability: its history and its current views.

Wording and structure of views for people, machines and the terminal are asserted only here.
"""

from dataclasses import replace
from typing import Any, Literal

import pytest

from agent_service.history.results import FILES
from agent_service.run.ports import Dismissal
from agent_service.views.why import ConsumerPosition, MessageLocation, Observations
from schemas.status import WaitingCall
from tests.core.cues import FETCH, RUN_ID, frames, plans, queued, started
from tests.core.script import NOON, Script
from tests.kit.golden import Golden
from tests.metrics.readings import measured
from tests.projections.courses import AFTER, PLAYED, STANDING
from tests.projections.journals import entries_of, pages_of, worked_example
from tests.projections.people import LETTER, a_run_in_doubt
from tests.projections.tellings import diary, history, lines, sections, standing, why, without_blank_lines


@pytest.mark.parametrize("course", PLAYED)
def test_a_run_is_told_entry_by_entry(course: str, golden: Golden) -> None:
    golden(f"history of {course}", history(PLAYED[course](), AFTER[course]))


@pytest.mark.parametrize("course", STANDING)
def test_a_run_is_shown_as_it_stands(course: str, golden: Golden) -> None:
    golden(f"standing of {course}", standing(STANDING[course]()))


def test_the_first_pages_of_a_run_are_written_whole(golden: Golden) -> None:
    pages = pages_of(entries_of(worked_example()))
    golden("pages of plain", sections({name: pages[name] for name in FILES[:4]}))


@pytest.mark.parametrize("course", ["proof", "priced", "compaction"])
def test_what_a_run_remembers_is_written_to_its_memory(course: str, golden: Golden) -> None:
    golden(f"memory of {course}", without_blank_lines(pages_of(entries_of(PLAYED[course]()))["memory.md"]))


def test_a_diary_has_an_entry_for_all_that_can_happen(golden: Golden) -> None:
    golden("diary", lines(diary(course() for course in PLAYED.values())))


def test_what_happens_to_runs_is_measured(golden: Golden) -> None:
    seen = measured(*(course() for course in PLAYED.values()))
    golden("metrics", "".join(f"{series} {round(value, 6)}\n" for series, value in seen.items()))


def place(progress: Literal["ahead", "in_hand", "done"] = "in_hand", before: int = 0) -> MessageLocation:
    position = ConsumerPosition(consumer="tools", progress=progress, before=before)
    return MessageLocation(stream="AGENTIC_REQUESTS", seq=3, at=NOON, consumers=(position,))


def waiting() -> Script:
    """A run that waits for a tool of the executor `hands`."""
    return queued() >> started((FETCH.model_copy(update={"executor": "hands"}),)) >> frames() >> plans()


WORD = WaitingCall(run_id=RUN_ID, step=1, tool="fetch", attempt=1, since=NOON, why="Ductile does not answer")
FOUND: dict[str, dict[str, Any]] = {
    "in hand": {"request": place()},
    "behind others": {"request": place(progress="ahead", before=4)},
    "dealt with": {"request": place(progress="done")},
    "with no consumer": {"request": MessageLocation(stream="S", seq=1, at=NOON)},
    "not on the bus": {},
    "with an executor that is away": {"request": place(), "present": frozenset()},
    "with an executor that waits": {"request": place(), "gateway_call": WORD},
    "answered, and not taken up": {"request": place(), "result": place()},
    "answered with a dead letter": {"request": place(), "letters": (LETTER,)},
    "not to be looked at": {"trouble": "no NATS"},
}
"""Locations of a pending request."""


def test_why_a_tool_is_waited_for_is_told_by_where_its_request_is(golden: Golden) -> None:
    seen = Observations(present=frozenset({"hands"}))
    run = waiting().state
    told = {name: lines(why(run, replace(seen, **found))) for name, found in FOUND.items()}
    dismissal = Dismissal(run_id=RUN_ID, version=5, by="token ops", at=NOON)
    told["of a run that was dismissed"] = lines(why(a_run_in_doubt().state, replace(seen, dismissal=dismissal)))
    golden("why", sections(told))
