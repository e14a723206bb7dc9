"""The echo plugin, and the programs of all plugins."""

from typing import Any

import pytest

from tests.plugins.asking import SHIPPED, a_request, run

CONFIG = {
    "url": "http://127.0.0.1:8700",
    "token": "a-token-of-the-agent-0123456789",
    "folder": str(SHIPPED),
    "timeout_seconds": 60,  # a busy machine takes its time to load a solver
}


def asked(plugin: str, payload: Any, *, command: str = "handle") -> dict[str, Any]:
    return run(SHIPPED / plugin, a_request(payload, command=command, config=CONFIG, seconds=90))


def test_a_message_comes_back_unchanged() -> None:
    response = asked("echo", {"message": "Grüße, 世界\n"})
    assert response == {"status": "ok", "result": "Grüße, 世界\n", "output": {"message": "Grüße, 世界\n"}}


@pytest.mark.parametrize("payload", [{}, {"message": " \n"}, {"message": 7}])
def test_without_a_message_the_error_says_what_is_missing(payload: dict[str, Any]) -> None:
    response = asked("echo", payload)
    assert (response["status"], response["error_class"], response["retry"]) == ("error", "invalid_arguments", False)
    assert "message" in response["error"]


@pytest.mark.parametrize("plugin", sorted(path.name for path in SHIPPED.iterdir()))
def test_the_program_answers_the_question_after_its_health_without_any_input(plugin: str) -> None:
    response = asked(plugin, {}, command="health")
    assert response["status"] == "ok", response


@pytest.mark.parametrize("plugin", sorted(path.name for path in SHIPPED.iterdir() if path.name != "agentic-wake"))
def test_the_program_answers_what_it_cannot_use_with_an_error(plugin: str) -> None:
    assert asked(plugin, {"message": None})["error_class"] == "invalid_arguments"
