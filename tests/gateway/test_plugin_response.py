"""What is concluded from what a plugin process left behind."""

import base64
import json
from typing import Any

import pytest

from ductile_gateway.calls.call import NeverStarted, ProducedArtifact, ToolOutcome, Unknown
from ductile_gateway.plugins.response import Ending, Remains, judge

OK = {"status": "ok", "result": "done"}


def remains(
    response: dict[str, Any] | bytes = b"",
    *,
    ending: Ending = "ended",
    exit_code: int | None = 0,
    began: bool = True,
    same_boot: bool = True,
    stderr: bytes = b"",
    secrets: tuple[str, ...] = (),
) -> Remains:
    stdout = response if isinstance(response, bytes) else json.dumps(response).encode()
    return Remains(ending, began, same_boot, exit_code, stdout, stderr, secrets)


def error(response: dict[str, Any] | bytes, **facts: Any) -> tuple[str | None, bool]:
    outcome = judge(remains(response, **facts))
    assert isinstance(outcome, ToolOutcome)
    assert outcome.status == "error"
    assert outcome.message
    return outcome.error_class, outcome.retryable


def message(response: dict[str, Any] | bytes, **facts: Any) -> str:
    outcome = judge(remains(response, **facts))
    assert isinstance(outcome, ToolOutcome)
    return outcome.message or ""


def test_an_answer_carries_its_text_output_and_artifacts() -> None:
    response = OK | {
        "output": {"rows": [1, None, {"a": "b"}]},
        "artifacts": [
            {"name": "a.md", "content_type": "text/markdown", "text": "Grüße"},
            {
                "name": "b.bin",
                "content_type": "application/octet-stream",
                "base64": base64.b64encode(b"\0\xff").decode(),
            },
        ],
        "state_updates": {"ignored": True},
    }
    assert judge(remains(response)) == ToolOutcome(
        "ok",
        text="done",
        output={"rows": [1, None, {"a": "b"}]},
        artifacts=(
            ProducedArtifact("a.md", "text/markdown", "Grüße".encode()),
            ProducedArtifact("b.bin", "application/octet-stream", b"\0\xff"),
        ),
    )


@pytest.mark.parametrize("exit_code", [0, 1, 78, 143])
def test_the_exit_code_is_ignored_beside_an_answer(exit_code: int) -> None:
    assert judge(remains(OK, exit_code=exit_code)) == ToolOutcome("ok", text="done")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("tool_error", True)),
        ({"retry": None}, ("tool_error", True)),
        ({"retry": True}, ("tool_error", True)),
        ({"retry": False}, ("tool_error", False)),
        ({"retry": False, "error_class": "not_found"}, ("not_found", False)),
        ({"error_class": "no_such_class"}, ("tool_error", True)),
        ({"error_class": ["odd"]}, ("tool_error", True)),
    ],
)
def test_an_error_is_retried_unless_it_says_not_to(fields: dict[str, Any], expected: tuple[str, bool]) -> None:
    assert error({"status": "error", "error": "no"} | fields) == expected


def test_exit_code_78_means_never_retry_with_or_without_a_response() -> None:
    assert error({"status": "error", "error": "no key", "retry": True}, exit_code=78) == ("configuration", False)
    assert error(b"", exit_code=78) == ("configuration", False)


@pytest.mark.parametrize(
    "stdout",
    [
        b"",
        b" \n",
        b"Traceback",
        b'{"status": "ok", "result": "cut sho',
        b'{"status": "ok", "result": "done"} {}',
        b'{"status": "ok", "result": "done"}, "more": {}',
        b'{"result": "done"}',
        b'{"status": "done", "result": "done"}',
        b'{"status": "ok"}',
        b'{"status": "ok", "result": ""}',
        b'{"status": "ok", "result": " "}',
        b'{"status": "ok", "result": {"a": 1}}',
        b'{"status": "error"}',
        b'{"status": "error", "error": " "}',
        b'{"status": "error", "error": "no", "retry": "maybe"}',
        b'{"status": "ok", "result": "done", "output": [1]}',
        b'{"status": "ok", "result": "done", "output": {"a": NaN}}',
        b'{"status": "ok", "result": "done", "output": {"a": 1e999}}',
        b'{"status": "ok", "result": "\\ud800"}',
        b'{"status": "ok", "result": "\xff"}',
        b'{"status": "ok", "result": "done", "output": {"a": ' + b"[" * 9000 + b"]" * 9000 + b"}}",
        b"[" * 100_000,
    ],
)
def test_anything_but_a_valid_response_is_bad_output_that_may_be_retried(stdout: bytes) -> None:
    assert error(stdout) == ("bad_output", True)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "-rf",
        "a/b",
        "../a",
        "/etc/passwd",
        "a\\b",
        "a b",
        "a\nb",
        "a\0b",
        "ä",
        "x" * 101,
        "a\n",
    ],
)
def test_an_artifact_name_that_is_no_plain_file_name_is_refused(name: str) -> None:
    artifact = {"name": name, "content_type": "text/plain", "text": ""}
    assert error(OK | {"artifacts": [artifact]}) == ("bad_output", True)


@pytest.mark.parametrize(
    "artifact",
    [
        {"content_type": "text/plain", "text": ""},
        {"name": "a", "text": ""},
        {"name": "a", "content_type": "text/plain"},
        {"name": "a", "content_type": "text/plain", "text": "x", "base64": "eA=="},
        {"name": "a", "content_type": "text/plain", "base64": "no base64!"},
        {"name": "a", "content_type": "text/plain\r\nX: y", "text": ""},
        "a",
    ],
)
def test_an_artifact_has_a_type_and_exactly_one_content(artifact: object) -> None:
    assert error(OK | {"artifacts": [artifact]}) == ("bad_output", True)


def test_two_artifacts_of_one_name_are_refused() -> None:
    artifact = {"name": "a", "content_type": "text/plain", "text": ""}
    assert "same name" in message(OK | {"artifacts": [artifact, artifact]})


def test_a_plugin_that_cannot_be_started_is_not_tried_again() -> None:
    assert error(b"", exit_code=127) == ("bad_output", False)


def test_a_message_tells_the_plugins_last_words_without_secrets_and_control_characters() -> None:
    stderr = b"Traceback\nValueError: \x1b[31mthe key is hunter2-secret\n"
    told = message(b"", exit_code=1, stderr=stderr, secrets=("hunter2-secret",))
    assert "ValueError" in told
    assert "exit code 1" in told
    assert "hunter2-secret" not in told
    assert "\x1b" not in told


def test_a_message_does_not_repeat_what_the_plugin_wrote_in_place_of_a_response() -> None:
    assert "hunter2" not in message(b'{"status": "ok", "result": 5, "token": "hunter2"}')


def test_a_message_names_the_signal_that_ended_the_plugin() -> None:
    assert "SIGSEGV" in message(b"", exit_code=139)


def test_text_is_free_of_characters_that_cannot_be_stored() -> None:
    outcome = judge(remains({"status": "ok", "result": "a\0b"}))
    assert isinstance(outcome, ToolOutcome)
    assert outcome.text == "a\ufffdb"


def test_a_process_that_was_stopped_at_its_deadline_is_a_timeout() -> None:
    assert error(b"", ending="overdue", exit_code=143) == ("timeout", True)
    assert error(b"", ending="overdue", exit_code=None) == ("timeout", True)


def test_what_a_plugin_still_answers_when_it_is_stopped_is_believed() -> None:
    half_way = {"status": "error", "error": "stopped after 3 of 5", "retry": False}
    assert error(half_way, ending="overdue") == ("tool_error", False)


def test_a_process_that_was_stopped_for_writing_too_much_is_bad_output_whatever_it_wrote() -> None:
    assert error(OK, ending="flooding") == ("bad_output", True)


def test_a_start_without_an_end_is_unknown() -> None:
    assert isinstance(judge(remains(OK, exit_code=None)), Unknown)


def test_a_start_that_did_not_come_to_the_plugin_never_happened() -> None:
    assert judge(remains(exit_code=None, began=False)) == NeverStarted()


def test_after_a_power_cut_a_complete_answer_is_believed_and_nothing_else_is() -> None:
    assert judge(remains(OK, same_boot=False)) == ToolOutcome("ok", text="done")
    assert isinstance(judge(remains(b"", same_boot=False)), Unknown)
    assert isinstance(judge(remains(b"", same_boot=False, exit_code=None)), Unknown)
    assert isinstance(judge(remains(b"", same_boot=False, exit_code=None, began=False)), Unknown)


def test_an_error_keeps_the_exit_code_and_the_end_of_stderr_without_secrets() -> None:
    said = b"x" * 3000 + b"\nSHED_API_KEY=hunter22 is refused\n"
    for response in (b"", {"status": "error", "error": "no"}):
        found = judge(remains(response, exit_code=78, stderr=said, secrets=("hunter22", "is")))
        assert isinstance(found, ToolOutcome)
        assert (found.job.exit_code, found.job.stderr) == (78, "SHED_API_KEY=*** is refused")
