"""A tool call as an event for Ductile, and what Ductile's answer to it means."""

import json
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from ductile_gateway.ductile.relay_envelope import read_reply, relayed_body
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.tool_events import tool_event
from schemas import keys
from tests.gateway.parts import RUN

KEY = keys.call(RUN, 3, "notes", 2)
BELONGS = {"run_id": RUN, "step": 3, "tool": "notes"}


def test_a_call_is_an_event_under_its_own_key_that_says_where_it_belongs() -> None:
    body = json.loads(relayed_body(tool_event("agentic.tool_request.save-note", KEY, {"text": "ü"}), "agentic-gateway"))
    assert body == {
        "event": {
            "type": "agentic.tool_request.save-note",
            "payload": {"text": "ü"} | BELONGS | {"attempt": 2},
            "dedupe_key": KEY,
        },
        "origin": {"instance": "agentic-gateway", "event_id": KEY},
        "baggage": BELONGS,
    }


def test_the_same_call_is_the_same_event_to_the_byte() -> None:
    first, again = (relayed_body(tool_event("t", KEY, {"b": 1, "a": 2}), "p") for _ in range(2))
    assert first == again


def test_no_argument_says_where_a_call_belongs() -> None:
    lies: dict[str, JsonValue] = {
        "run_id": "run_of_another",
        "step": 9,
        "tool": "x",
        "attempt": 7,
        "wake_id": "w",
        "tool_command": "c",
    }
    assert tool_event("t", KEY, lies).payload == BELONGS | {"attempt": 2}


@pytest.mark.parametrize(
    ("status", "body", "unheard"),
    [
        (202, {"status": "accepted", "event_type": "t"}, True),
        (202, {"status": "accepted", "job_id": "j-1"}, False),
        (202, {"status": "accepted", "job_id": "../x"}, False),
        (202, {}, False),
        (202, [], False),
        (200, {"status": "accepted"}, False),
    ],
)
def test_only_an_event_that_was_accepted_without_a_job_is_unheard(status: int, body: Any, unheard: bool) -> None:
    assert read_reply(status, json.dumps(body).encode()).unheard == unheard


def test_an_id_that_is_none_is_not_taken_for_the_id_of_a_job() -> None:
    assert read_reply(202, b'{"status": "accepted", "job_id": "../x"}').job_id == ""


def settings(**relay: Any) -> DuctileSettings:
    return DuctileSettings.model_validate(
        {"url": "http://localhost:1", "token": "t", "relay": {"secret": "a-relay-secret-for-tests"} | relay}
    )


def test_a_route_has_its_own_type_of_event_unless_another_is_chosen() -> None:
    chosen = settings(routes={"save-note": None, "post": "blog.post_asked"})
    assert chosen.relay
    assert chosen.relay.event_types() == {"save-note": "agentic.tool_request.save-note", "post": "blog.post_asked"}
    assert chosen.relayed() == {"save-note", "post"}
    assert chosen.secrets() == ("t", "a-relay-secret-for-tests")


@pytest.mark.parametrize(
    "routes", [{}, {"../x": None}, {"note": "Agentic.Note"}, {"note": "a..b"}, {"note": "a b"}, {"ends-": None}]
)
def test_a_route_or_type_that_ductile_would_not_take_is_refused(routes: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(routes=routes, secret="a-relay-secret-not-to-show")  # noqa: S106 - one that must not be shown
    assert "a-relay-secret" not in str(caught.value)
