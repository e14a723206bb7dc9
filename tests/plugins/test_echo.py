"""The echo plugin."""

from typing import Any

import pytest

from tests.plugins.asking import SHIPPED, ask

ECHO = SHIPPED / "echo"


def test_a_message_comes_back_unchanged() -> None:
    response = ask(ECHO, {"message": "Grüße, 世界\n"})
    assert response == {"status": "ok", "result": "Grüße, 世界\n", "output": {"message": "Grüße, 世界\n"}}


@pytest.mark.parametrize("payload", [{}, {"message": " \n"}, {"message": 7}])
def test_without_a_message_the_error_says_what_is_missing(payload: dict[str, Any]) -> None:
    response = ask(ECHO, payload)
    assert (response["status"], response["error_class"], response["retry"]) == ("error", "invalid_arguments", False)
    assert "message" in response["error"]


@pytest.mark.parametrize("plugin", ["artifact", "echo", "fetch", "text-report"])
def test_health_is_answered_without_any_input(plugin: str) -> None:
    assert ask(SHIPPED / plugin, {}, command="health")["status"] == "ok"
