"""Admission and refusal of calls, and the outcome of a call whose end was not seen."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ductile_gateway.calls.admission import PauseGate
from ductile_gateway.calls.call import JobFacts, NeverStarted, ToolCall, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.calls.policy import after_run
from ductile_gateway.plugins.response import CallRemains, judge
from schemas.events import RESERVED_KEYS
from schemas.status import Halt
from tests.gateway.parts import CATALOG, NOON, a_request, asked_for, offering

DONE = ToolOutcome("ok", text="done")


def admitted(request: Any) -> Any:
    return offering(CATALOG).admit(asked_for(request), now=NOON)


UNKNOWN = Unknown("it was started, and nobody saw its end")
LATE = failed("timeout", "it did not answer in time", retryable=True)
GARBLED = failed("bad_output", "it wrote no response", retryable=True)
STOPPED = judge(CallRemains(found={"began": b"7 1.5", "stopped": b"memory_mb", "exit": b"137 2.5"}))
TOLD = failed("tool_error", "no such page", retryable=False)


@pytest.mark.parametrize(
    ("verdict", "of_a_read", "of_a_write"),
    [
        (TOLD, ("tool_error", False), ("tool_error", False)),
        (LATE, ("timeout", True), ("in_doubt", False)),
        (GARBLED, ("bad_output", True), ("in_doubt", False)),
        (STOPPED, ("bad_output", False), ("in_doubt", False)),
        (UNKNOWN, ("transient", True), ("in_doubt", False)),
        (NeverStarted(), ("transient", True), ("transient", True)),
    ],
)
def test_a_write_whose_outcome_nobody_knows_is_in_doubt(verdict: Verdict, of_a_read: Any, of_a_write: Any) -> None:
    for command, expected in (("handle", of_a_read), ("tag", of_a_read), ("save", of_a_write)):
        outcome = after_run(verdict, admitted(a_request(command)))
        assert (outcome.error_class, outcome.retryable) == expected


@pytest.mark.parametrize("made", [DONE, failed("tool_error", "no", retryable=True)])
def test_a_write_that_was_run_more_than_once_says_so_or_is_in_doubt_where_that_escalates(made: ToolOutcome) -> None:
    rerun, save = replace(made, job=JobFacts("job-7", attempts=2)), admitted(a_request("save"))
    told = after_run(rerun, save, escalates=False)
    assert (told.status, told.error_class) == (made.status, made.error_class)
    assert "Ductile ran it 2 times" in (told.message or told.text)
    doubt = after_run(rerun, save, escalates=True)
    assert (doubt.error_class, doubt.retryable, doubt.job.job_id) == ("in_doubt", False, "job-7")
    assert "job job-7 of Ductile" in str(doubt.message)
    assert after_run(rerun, admitted(a_request("tag")), escalates=True) == rerun


@pytest.mark.parametrize("name", [*sorted(RESERVED_KEYS), "Run_ID", "TOOL", " step", "attempt ", "\uff52un_id"])
def test_no_argument_may_have_a_reserved_name_or_look_like_one(name: str) -> None:
    assert admitted(a_request(payload={"url": "x", name: "other"})).error_class == "invalid_arguments"
    assert isinstance(admitted(a_request(payload={"url": "x", "deeper": {name: "is harmless"}})), ToolCall)


def test_a_deadline_is_later_by_all_stops_that_the_call_waited_through() -> None:
    gate, asked = PauseGate(), asked_for(a_request(deadline_at=NOON + timedelta(seconds=60)))
    for number in (1, 2):
        since = NOON + timedelta(seconds=30 * number)
        gate.update(Halt(number=number, since=since, until=since + timedelta(seconds=10), over=True))
    assert gate.with_time_stopped(asked).request.deadline_at == NOON + timedelta(seconds=80)
