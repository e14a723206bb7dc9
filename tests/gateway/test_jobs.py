"""What is concluded from what Ductile says of a job."""

import base64
import json
from typing import Any

import pytest

from ductile_gateway.calls.call import ToolOutcome, Unknown
from ductile_gateway.ductile.jobs import Going, SeeLog, read_job, read_log, read_tree
from ductile_gateway.plugins.response import Remains, judge

OK: dict[str, Any] = {"status": "ok", "result": "done"}


def job(status: str, result: Any = None, **fields: Any) -> dict[str, Any]:
    found = {"job_id": "j", "status": status, "plugin": "probe", "command": "look"} | fields
    return found if result is None else found | {"result": result}


def outcome(reading: object) -> ToolOutcome:
    assert isinstance(reading, ToolOutcome)
    return reading


@pytest.mark.parametrize("status", ["queued", "running", "completed", "paused", ""])
def test_a_status_that_is_not_an_ending_is_waited_for(status: str) -> None:
    assert read_job(job(status)) == Going()


def test_a_queued_job_that_was_started_is_being_retried() -> None:
    assert read_job(job("queued", started_at="2026-11-21T12:00:00Z")) == Going(retrying=True)


def test_a_plugin_has_the_same_outcome_in_ductile_as_run_by_the_gateway() -> None:
    content = base64.b64encode(b"\0\xff").decode()
    artifact = {"name": "b.bin", "content_type": "application/octet-stream", "base64": content}
    response = OK | {"output": {"rows": [1]}, "artifacts": [artifact], "events": [{"type": "x", "payload": {}}]}
    here = judge(Remains("ended", True, True, 0, json.dumps(response).encode()))
    assert read_job(job("succeeded", response)) == here


def test_without_an_output_its_own_fields_and_events_are_the_output() -> None:
    event = {"type": "file.read", "payload": {"content": "hey"}, "dedupe_key": "d"}
    response = OK | {"events": [event], "size": 3, "logs": [], "state_updates": {"a": 1}}
    found = outcome(read_job(job("succeeded", response)))
    assert found.output == {"size": 3, "events": [{"type": "file.read", "payload": {"content": "hey"}}]}


def test_a_tool_that_succeeded_is_not_failed_by_what_follows_from_it() -> None:
    found = outcome(read_job(job("failed", OK)))
    assert found.status == "ok"
    assert found.text.startswith("done\n[the tool has succeeded, but")


@pytest.mark.parametrize(("said", "retryable"), [({}, False), ({"retry": True}, True), ({"retry": False}, False)])
def test_what_ductile_has_retried_is_not_retried_unless_the_plugin_says_so(said: Any, retryable: bool) -> None:
    response = {"status": "error", "error": "no such page", "error_class": "not_found"} | said
    found = outcome(read_job(job("failed", response)))
    assert (found.error_class, found.message, found.retryable) == ("not_found", "no such page", retryable)


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_an_ending_without_its_result_is_told_by_the_log(status: str) -> None:
    assert read_job(job(status)) == SeeLog()


def test_a_failure_without_a_response_is_told_in_ductiles_words() -> None:
    found = outcome(read_log([job("failed", last_error="decode: not JSON\0")]))
    assert (found.error_class, found.retryable) == ("bad_output", False)
    assert found.message == "the plugin gave no valid response: decode: not JSON\ufffd"


def test_a_job_that_is_not_in_the_log_yet_is_waited_for() -> None:
    assert read_log([]) == Going()


def test_a_time_limit_of_ductiles_is_a_timeout() -> None:
    assert outcome(read_job(job("timed_out"))).error_class == "timeout"


def test_a_job_given_up_is_unknown() -> None:
    found = read_job(job("dead"))
    assert isinstance(found, Unknown)
    assert "interrupted" in found.reason


def test_a_skipped_step_is_fine_and_has_no_output() -> None:
    found = outcome(read_job(job("skipped", {"status": "skipped", "reason": "if: false"})))
    assert (found.status, found.text, found.output) == ("ok", "Skipped by Ductile: if: false", {})


@pytest.mark.parametrize("result", [["a"], "text", 7])
def test_a_success_whose_result_is_no_object_is_still_a_success(result: Any) -> None:
    assert outcome(read_job(job("succeeded", result))).status == "ok"


def test_an_invalid_response_is_bad_output_and_is_not_retried() -> None:
    found = outcome(read_job(job("succeeded", {"status": "ok", "result": " "})))
    assert (found.error_class, found.retryable) == ("bad_output", False)


def test_a_pipeline_goes_on_while_one_of_its_jobs_does() -> None:
    assert read_tree([job("succeeded", OK), job("queued")]) == Going()
    assert read_tree([]) == Going()


def test_a_pipeline_answers_as_its_last_step() -> None:
    first, last = OK | {"result": "first"}, OK | {"result": "last"}
    tree = [job("succeeded", last, completed_at="2026-11-21T12:00:02Z"), job("succeeded", first, completed_at="2026")]
    assert outcome(read_tree([*tree, job("skipped", completed_at="2026-11-21T12:00:03Z")])).text == "last"


def test_a_pipeline_has_failed_with_one_of_its_steps() -> None:
    broken = job("failed", {"status": "error", "error": "no"}, completed_at="2026-11-21T12:00:01Z")
    assert outcome(read_tree([broken, job("succeeded", OK, completed_at="2027")])).message == "no"


def test_a_step_of_ductiles_own_has_its_answer_as_output() -> None:
    assert outcome(read_tree([job("succeeded", {"matched": True})])).output == {"matched": True}
