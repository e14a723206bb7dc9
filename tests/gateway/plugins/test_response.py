"""The verdict on the record of a plugin process, and on a job of Ductile."""

import base64
import json
from typing import Any

import pytest

from ductile_gateway.calls.call import NeverStarted, ProducedArtifact, ToolOutcome, Unknown, Verdict
from ductile_gateway.ductile.jobs import Unfinished, read_job, read_log, read_tree
from ductile_gateway.plugins.response import USED, CallRemains, PluginSecrets, judge, outcome_of

OK: dict[str, Any] = {"status": "ok", "result": "done"}
DONE = ToolOutcome("ok", text="done")
ERROR = {"status": "error", "error": "no"}
PLAIN = {"name": "a", "content_type": "text/plain", "text": ""}


def judged(
    response: dict[str, Any] | bytes = b"",
    *,
    ending: str = "",
    exit_code: int | None = 0,
    began: bool = True,
    same_boot: bool = True,
    config: dict[str, Any] | None = None,
) -> Verdict:
    stdout = response if isinstance(response, bytes) else json.dumps(response).encode()
    found = {"request": b"{}", "stdout": stdout}
    found |= {"began": b"7 1.5"} if began else {}
    found |= {"exit": f"{exit_code} 2.5".encode()} if exit_code is not None else {}
    found |= {"stopped": ending.encode()} if ending else {}
    return judge(CallRemains(found=found, same_boot=same_boot, secrets=PluginSecrets(config)))


def failure(response: dict[str, Any] | bytes = b"", **facts: Any) -> ToolOutcome:
    outcome = judged(response, **facts)
    assert isinstance(outcome, ToolOutcome)
    assert (outcome.status, bool(outcome.message)) == ("error", True)
    return outcome


def test_an_answer_carries_its_text_output_and_artifacts_whoever_has_run_the_plugin() -> None:
    text = {"name": "a.md", "content_type": "text/markdown", "text": "Grüße"}
    binary = {"name": "b.bin", "content_type": "application/octet-stream"}
    content = base64.b64encode(b"\0\xff").decode()
    output: Any = {"rows": [1, None, {"a": "b"}]}
    ignored = {"state_updates": {"ignored": True}, "events": [{"type": "x", "payload": {}}]}
    response = OK | {"output": output, "artifacts": [text, binary | {"base64": content}]} | ignored
    artifacts = (
        ProducedArtifact("a.md", "text/markdown", "Grüße".encode()),
        ProducedArtifact("b.bin", "application/octet-stream", b"\0\xff"),
    )
    expected = ToolOutcome("ok", text="done", output=output, artifacts=artifacts)
    assert judged(response) == outcome_of(response) == read_job(job("succeeded", response)) == expected
    without = OK | dict.fromkeys(("output", "artifacts", "continuation", "events", "error"))
    own = read_job(job("succeeded", OK | {"output": "a word", "mood": None}))
    assert own == ToolOutcome("ok", text="done", output={"output": "a word", "mood": None})
    assert judged(without) == outcome_of(without) == read_job(job("succeeded", without)) == DONE


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        *(({"response": OK, "exit_code": code}, DONE) for code in (0, 1, 78, 143)),
        ({"response": OK, "exit_code": None}, Unknown),
        ({"exit_code": None, "began": False}, NeverStarted()),
        ({"response": OK, "same_boot": False}, DONE),
        ({"same_boot": False}, Unknown),
        ({"same_boot": False, "exit_code": None, "began": False}, Unknown),
    ],
)
def test_a_complete_answer_is_believed_and_a_start_without_an_end_is_unknown(
    facts: dict[str, Any], expected: Any
) -> None:
    verdict = judged(**facts)
    assert verdict == expected or (expected is Unknown and isinstance(verdict, Unknown))


@pytest.mark.parametrize(
    ("facts", "class_", "retryable"),
    [
        ({"response": ERROR}, "tool_error", True),
        ({"response": ERROR | {"retry": True}}, "tool_error", True),
        ({"response": ERROR | {"retry": False}}, "tool_error", False),
        ({"response": ERROR | {"retry": False, "error_class": "not_found"}}, "not_found", False),
        ({"response": ERROR | {"error_class": "no_such_class"}}, "tool_error", True),
        ({"response": ERROR | {"retry": True}, "exit_code": 78}, "configuration", False),
        ({"exit_code": 78}, "configuration", False),
        ({"exit_code": 127}, "bad_output", False),
        ({"ending": "overdue", "exit_code": 143}, "timeout", True),
        ({"response": ERROR | {"retry": False}, "ending": "overdue"}, "tool_error", False),
        ({"response": OK, "ending": "output"}, "bad_output", True),
        *(({"response": OK, "ending": limit}, "bad_output", False) for limit in USED),
    ],
)
def test_each_failure_has_its_class_and_whether_another_attempt_can_help(
    facts: dict[str, Any], class_: str, retryable: bool
) -> None:
    found = failure(**facts)
    assert (found.error_class, found.retryable) == (class_, retryable)


@pytest.mark.parametrize(
    ("stdout", "why"),
    [
        (b"", "no response"),
        (b'{"status": "ok", "result": "cut sho', "is not JSON (line 1 column 35)"),
        (b'{"status": "ok", "result": "done"}, "more": {}', "is not JSON (line 1 column 35)"),
        (b'{"result": "done"}', ": status is missing"),
        (b'{"status": "a\\nb", "result": "done"}', ": status must be one of 'ok', 'continuation', 'error'"),
        (b'{"status": "ok"}', "result: must not be blank"),
        (b'{"status": "ok", "result": " "}', "result: must not be blank"),
        (b'{"status": "ok", "result": {"a": 1}}', "result: must be a text"),
        (b'{"status": "ok", "result": "a", "artifacts": 1}', "artifacts: must be a list"),
        (b'{"status": "error"}', "error: is missing"),
        (b'{"status": "error", "error": "no", "retry": "maybe"}', "retry: must be true or false"),
        (b'{"status": "ok", "result": "done", "output": [1]}', "output: must be an object"),
        (b'{"status": "ok", "result": "done", "output": {"a": NaN}}', "output: must not contain NaN"),
        (b'{"status": "ok", "result": "\\ud800"}', "is not JSON"),
        (b'{"status": "ok", "result": "done", "output": {"a": ' + b"[" * 9000 + b"]" * 9000 + b"}}", "too deeply"),
    ],
)
def test_anything_but_a_valid_response_is_bad_output_that_may_be_retried_and_says_what_is_wrong(
    stdout: bytes, why: str
) -> None:
    found = failure(stdout)
    assert (found.error_class, found.retryable, why in str(found.message)) == ("bad_output", True, True), found


PATHS = ("", ".", "..", ".hidden", "a/b", "../a", "/etc/passwd", "a\\b")
NO_NAMES = (*PATHS, "-rf", "a b", "a\nb", "a\0b", "ä", "a\n", "x" * 101)


@pytest.mark.parametrize(
    "artifacts",
    [
        *([PLAIN | {"name": name}] for name in NO_NAMES),
        [{"content_type": "text/plain", "text": ""}],
        [{"name": "a", "text": ""}],
        [{"name": "a", "content_type": "text/plain"}],
        [PLAIN | {"text": "x", "base64": "eA=="}],
        [{"name": "a", "content_type": "text/plain", "base64": "no base64!"}],
        [PLAIN | {"content_type": "text/plain\r\nX: y"}],
        ["a"],
        [PLAIN, PLAIN],
    ],
)
def test_an_artifact_has_a_plain_file_name_of_its_own_a_type_and_exactly_one_content(artifacts: list[object]) -> None:
    response: dict[str, Any] = OK | {"artifacts": artifacts}
    found, elsewhere = failure(response), outcome_of(response)
    assert (found.error_class, found.retryable) == ("bad_output", True)
    assert (elsewhere.error_class, elsewhere.retryable) == ("bad_output", False), "a Ductile has tried again itself"


def test_a_request_for_more_that_is_flawed_is_bad_output_that_names_the_field() -> None:
    tasks: list[Any] = [{"action": "retrieve", "query": "a"}, {"action": "plugin", "input": "b"}]
    outcome = outcome_of(OK | {"continuation": {"action": "multi-step", "tasks": tasks}})
    assert (outcome.error_class, outcome.retryable) == ("bad_output", False)
    assert "tasks.1.plugin is missing" in str(outcome.message)


@pytest.mark.attack(60, 64)
@pytest.mark.parametrize(
    "spelled",
    [
        "hunter2/sé&ret",
        "hunter2%2Fs%C3%A9%26ret",
        "hunter2%2fs%c3%a9&ret",
        "hunter2\\/s\\u00e9&ret",
        "hunter2/sé\\u0026ret",
    ],
)
def test_an_error_that_a_plugin_words_itself_tells_nothing_of_its_configuration(spelled: str) -> None:
    for error in ("401 for the key %s at https://shed.example", f"{'x' * 3990}%s"):  # the latter is cut within it
        said = {"status": "error", "error": error % spelled, "retry": False}
        assert failure(said, config={"login": "hunter2/sé&ret"}).message == error % "***"


def test_an_answer_brings_no_key_of_its_plugin_in_any_form_and_all_else_as_it_is() -> None:
    config = {
        "token_url": "http://shed.example",
        "login": {"password": 'hunter2"é/x', "user": "hunter2-"},
        "token": "short",
    }
    said = {
        "result": 'as hunter2- by hunter2"é/x, short',
        "output": {"seen": ["http://shed.example/?p=hunter2%22%C3%A9%2Fx"]},
    }
    outcome = judged(OK | said | {"artifacts": [PLAIN | {"text": 'hunter2\\"é/x'}]}, config=config)
    assert isinstance(outcome, ToolOutcome)
    assert (outcome.text, outcome.output) == ("as hunter2- by ***, short", {"seen": ["http://shed.example/?p=***"]})
    assert outcome.artifacts[0].content == b"***"


def job(status: str, result: Any = None, **fields: Any) -> dict[str, Any]:
    found = {"job_id": "j", "status": status, "plugin": "probe", "command": "look"} | fields
    return found if result is None else found | {"result": result}


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        *((read_job(job(status)), Unfinished()) for status in ("queued", "running", "completed", "paused", "")),
        (read_job(job("queued", started_at="2026-11-21T12:00:00Z")), Unfinished(retrying=True)),
        *((read_job(job("failed", *odd)), None) for odd in ([], [7], [{"status": "continuation"}])),
        (read_log([]), Unfinished()),
        (read_tree([job("succeeded", OK), job("queued")]), Unfinished()),
        (read_tree([job("succeeded", OK), job("queued", started_at="2026")]), Unfinished(retrying=True)),
        (read_tree([]), Unfinished()),
    ],
)
def test_only_what_ductile_calls_finished_and_tells_the_end_of_is_concluded_from(
    reading: object, expected: object
) -> None:
    assert reading == expected


REFUSED = {"status": "error", "error": "no such page", "error_class": "not_found"}
BROKEN = job("failed", ERROR, completed_at="2026-11-21T12:00:01Z")
LAST = [
    job("succeeded", OK | {"result": "last"}, completed_at="2026-11-21T12:00:02.5Z"),
    job("succeeded", OK | {"result": "first"}, completed_at="2026-11-21T12:00:02Z"),
    job("skipped", completed_at="2026-11-21T12:00:03Z"),
]


@pytest.mark.parametrize(
    ("reading", "class_", "retryable", "told"),
    [
        *((read_job(job("succeeded", odd)), None, False, "The tool has succeeded") for odd in (["a"], "text", 7)),
        (read_tree(LAST), None, False, "last"),
        (read_tree([BROKEN, job("succeeded", OK, completed_at="2027")]), "tool_error", False, "no"),
        (read_job(job("failed", REFUSED)), "not_found", False, "no such page"),
        (read_job(job("failed", REFUSED | {"retry": True})), "not_found", True, "no such page"),
    ],
)
def test_a_pipeline_has_the_outcome_of_its_worst_step_and_only_a_plugin_says_that_it_is_to_be_tried_again(
    reading: Any, class_: str | None, retryable: bool, told: str
) -> None:
    assert (reading.error_class, reading.retryable) == (class_, retryable)
    assert (reading.message or reading.text).startswith(told)
