"""What is concluded from what Ductile says of a job."""

import base64
import json
from typing import Any

import pytest

from ductile_gateway.calls.call import ToolOutcome
from ductile_gateway.ductile.jobs import Going, SeeLog, read_job, read_log, read_tree
from ductile_gateway.plugins.response import Remains, judge

OK: dict[str, Any] = {"status": "ok", "result": "done"}


def job(status: str, result: Any = None, **fields: Any) -> dict[str, Any]:
    found = {"job_id": "j", "status": status, "plugin": "probe", "command": "look"} | fields
    return found if result is None else found | {"result": result}


def outcome(reading: object) -> ToolOutcome:
    assert isinstance(reading, ToolOutcome)
    return reading


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        *((read_job(job(status)), Going()) for status in ("queued", "running", "completed", "paused", "")),
        (read_job(job("queued", started_at="2026-11-21T12:00:00Z")), Going(retrying=True)),
        (read_job(job("succeeded")), SeeLog()),
        *((read_job(job("failed", *odd)), SeeLog()) for odd in ([], [7], [{"status": "continuation"}])),
        (read_log([]), Going()),
        (read_tree([job("succeeded", OK), job("queued")]), Going()),
        (read_tree([]), Going()),
    ],
)
def test_only_what_ductile_calls_finished_and_tells_the_end_of_is_concluded_from(
    reading: object, expected: object
) -> None:
    assert reading == expected


def test_a_plugin_has_the_same_outcome_in_ductile_as_run_by_the_gateway() -> None:
    content = base64.b64encode(b"\0\xff").decode()
    artifact = {"name": "b.bin", "content_type": "application/octet-stream", "base64": content}
    response = OK | {"output": {"rows": [1]}, "artifacts": [artifact], "events": [{"type": "x", "payload": {}}]}
    here = judge(Remains("ended", True, True, 0, json.dumps(response).encode()))
    assert read_job(job("succeeded", response)) == here


@pytest.mark.parametrize(("said", "retryable"), [({}, False), ({"retry": True}, True), ({"retry": False}, False)])
def test_what_ductile_has_retried_is_not_retried_unless_the_plugin_says_so(said: Any, retryable: bool) -> None:
    response = {"status": "error", "error": "no such page", "error_class": "not_found"} | said
    found = outcome(read_job(job("failed", response)))
    assert (found.error_class, found.message, found.retryable) == ("not_found", "no such page", retryable)


BAD = {"status": "ok", "result": " "}
SKIPPED = {"status": "skipped", "reason": "if: false"}
BROKEN = job("failed", {"status": "error", "error": "no"}, completed_at="2026-11-21T12:00:01Z")
LAST = [
    job("succeeded", OK | {"result": "last"}, completed_at="2026-11-21T12:00:02Z"),
    job("succeeded", OK | {"result": "first"}, completed_at="2026"),
    job("skipped", completed_at="2026-11-21T12:00:03Z"),
]


@pytest.mark.parametrize(
    ("reading", "class_", "told"),
    [
        (read_job(job("failed", OK)), None, "done\n[the tool has succeeded, but"),
        (read_log([job("failed", last_error="not JSON\0")]), "bad_output", "the plugin gave no valid response: not JS"),
        (read_job(job("timed_out")), "timeout", "the plugin exceeded Ductile's time limit"),
        (read_job(job("skipped", SKIPPED)), None, "Skipped by Ductile: if: false"),
        *((read_job(job("succeeded", odd)), None, "The tool has succeeded") for odd in (["a"], "text", 7)),
        (read_job(job("succeeded", BAD)), "bad_output", "the plugin wrote no valid response"),
        (read_tree(LAST), None, "last"),
        (read_tree([BROKEN, job("succeeded", OK, completed_at="2027")]), "tool_error", "no"),
    ],
)
def test_each_ending_has_its_outcome_and_none_is_to_be_tried_again(reading: Any, class_: str | None, told: str) -> None:
    found = outcome(reading)
    assert (found.error_class, found.retryable) == (class_, False)
    assert (found.message or found.text).startswith(told)
    assert "\0" not in str(found.message)
