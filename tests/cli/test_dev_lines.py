"""What `agentic dev` shows of runs and troubles as they go by, made of the lines that the services log."""

import json
from typing import Any

import pytest

from agent_service.run.moments import retell
from agent_service.telling.log_lines import log_line
from agent_service.workbench.dev_command import Lines
from tests.core.cues import RUN_ID, a_retrying_run, due, returns
from tests.core.script import Script
from tests.projections.journals import entries_of, worked_example


def shown(script: Script) -> list[str]:
    """The lines of a run, without the instants and the run that they begin with."""
    lines, told = Lines(), []
    for moment in retell(entries_of(script)):
        made = log_line(moment)
        level = "WARNING" if made.level > 20 else "INFO"
        fields = {"ts": moment.entry.at.isoformat(), "level": level, "msg": made.message, **made.fields}
        if line := lines.line(json.dumps(fields)):
            told.append(line.plain.partition(f"{RUN_ID}  ")[2])
    return told


def test_a_run_is_a_line_when_it_is_accepted_one_for_each_step_and_one_at_its_end() -> None:
    assert shown(worked_example()) == [
        "accepted",
        "step 1 fetch  ok  1.0 s",
        "step 2 text-report  ok  1.0 s",
        "done  after 8.0 s  3680 tokens  0.0168 USD",
    ]


def test_an_attempt_that_failed_is_told_with_the_reason_and_the_next_with_its_number() -> None:
    assert shown(a_retrying_run() >> due >> returns())[-2:] == [
        "step 1 fetch  failed  0.0 s: it broke",
        "step 1 fetch  ok (attempt 2)  0.0 s",
    ]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"level": "WARNING", "msg": "NATS is away", "why": "no answer"}, "NATS is away: no answer"),
        ({"level": "ERROR", "msg": "\x1b[31mred", "run_id": "run_1"}, "run_1  ␛[31mred"),
        ({"level": "INFO", "msg": "ready"}, None),
        (
            {"level": "INFO", "msg": "other tools are on offer", "new": ["a", "b"], "gone": [], "changed": ["c"]},
            "tools  new: a, b  changed: c",
        ),
    ],
)
def test_of_other_lines_those_are_shown_that_somebody_should_see(fields: dict[str, Any], told: str | None) -> None:
    line = Lines().line(json.dumps({"ts": "2026-11-21T12:00:00Z", **fields}))
    assert (line and line.plain[10:]) == told


@pytest.mark.parametrize("written", ["", "Traceback (most recent call last):", "{}", "[1]", '{"ts": 1}'])
def test_what_is_no_line_of_ours_is_passed_over(written: str) -> None:
    assert Lines().line(written) is None
