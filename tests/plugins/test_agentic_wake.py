"""The agentic-wake plugin: it succeeds exactly when the agent has accepted, and says what to do when it has not."""

import socket
import time
from typing import Any

import pytest

from tests.plugins.wake_api import RUN, WakeApi
from tests.plugins.waking import ORDER, TOKEN, a_request, raw, wake
from tests.plugins.waking import api as api
from tests.plugins.waking import served as served

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

# What is sent, and what an acceptance becomes


@pytest.mark.parametrize("command", ["wake", "handle"])
def test_an_order_is_sent_as_it_was_given_with_the_token(api: WakeApi, command: str) -> None:
    response = wake(api.url, command=command)
    assert response["status"] == "ok", response
    (sent,) = api.received
    assert (sent.path, sent.order) == ("/v1/wake", ORDER)
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"
    assert (sent.headers["content-type"], sent.headers["content-length"]) == ("application/json", str(len(sent.body)))


def test_without_a_wake_id_every_attempt_of_a_job_sends_the_same_order(api: WakeApi) -> None:
    first, second = (wake(api.url, {"goal": "look around"}) for _ in range(2))
    assert first["output"]["wake_id"] == second["output"]["wake_id"] == "ductile:job-1"
    assert api.received[0].body == api.received[1].body


def test_with_a_goal_in_the_settings_what_comes_is_what_the_run_is_about_once_for_each_job(api: WakeApi) -> None:
    failed = {"job_id": "0b9c", "plugin": "backup", "error": "no space left", "goal": "erase it"}
    wake(api.url, failed | {"ductile_plugin": "x"}, command="handle", goal="Find out why.", untrusted=True)
    about = {"context": failed | {"event": "api.trigger"}, "wake_id": "0b9c"}
    assert api.received[0].order == {"goal": "Find out why.", "untrusted": True} | about


@pytest.mark.parametrize(
    ("payload", "context", "sent"),
    [
        ({"traceparent": TRACEPARENT}, {}, TRACEPARENT),
        ({}, {"traceparent": TRACEPARENT}, TRACEPARENT),
        ({"traceparent": TRACEPARENT}, {"traceparent": "of the pipeline"}, TRACEPARENT),
        ({"traceparent": "\r\nX-Evil: 1"}, {"traceparent": ["no text"]}, None),
        ({}, None, None),
    ],
)
def test_a_place_in_a_trace_is_handed_on_beside_the_order(
    api: WakeApi, payload: dict[str, Any], context: Any, sent: str | None
) -> None:
    config = {"url": api.url, "token": TOKEN}
    response = raw(a_request(config=config, payload={"goal": "look"} | payload, context=context))
    assert response["status"] == "ok", response
    (received,) = api.received
    assert received.headers.get("traceparent") == sent
    assert received.order == {"goal": "look", "wake_id": "ductile:job-1"}


@pytest.mark.parametrize(
    ("said", "configured", "sent"),
    [({"untrusted": True}, {}, True), ({"untrusted": False}, {"untrusted": True}, True), ({}, {}, None)],
)
def test_the_order_or_the_settings_say_that_strangers_wrote_it(
    api: WakeApi, said: dict[str, Any], configured: dict[str, Any], sent: bool | None
) -> None:
    raw(a_request(config={"url": api.url, "token": TOKEN} | configured, payload={"goal": "look"} | said))
    assert api.received[0].order.get("untrusted") is sent


@pytest.mark.parametrize("goal", ["x" * 32768, "é" * 16384, "“quoted” \\u0000 \u202e\x07", "0"])
def test_any_goal_within_its_bounds_arrives_unchanged(api: WakeApi, goal: str) -> None:
    assert wake(api.url, {"goal": goal})["status"] == "ok"
    assert api.received[0].order["goal"] == goal


# What is never sent


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({}, "goal is missing"),
        ({"goal": None}, "goal is missing"),
        ({"goal": ""}, "goal is missing or blank"),
        ({"goal": " \n\t\u2003"}, "goal is missing or blank"),
        ({"goal": 7}, "goal must be text"),
        ({"goal": ["look"]}, "goal must be text"),
        ({"goal": "x" * 33 * 1024}, "at most 32768 bytes"),
        ({"goal": "é" * 16385}, "at most 32768 bytes"),
        ({"goal": "a\0b"}, "NUL"),
        ({"goal": "a\ud800"}, "cannot carry"),
        ({"goal": "look", "context": {"n": float("nan")}}, "cannot carry"),
        ({"goal": "look", "context": "kindly"}, "context must be an object"),
        ({"goal": "look", "constraints": [5]}, "constraints must be an object"),
        ({"goal": "look", "callback": {}}, "callback must be text"),
        ({"goal": "look", "wake_id": 5}, "wake_id must be text"),
        ({"goal": "look", "wake_id": "two words"}, "wake_id must be 1 to 128"),
        ({"goal": "look", "wake_id": ""}, "wake_id must be 1 to 128"),
        ({"goal": "look", "wake_id": "x\n"}, "wake_id must be 1 to 128"),
        ({"goal": "look", "context": {"page": "x" * 256 * 1024}}, "at most 262144 bytes"),
        ({"goal": "look", "untrusted": "no"}, "untrusted must be true or false"),
        (["look"], "must be an object"),
        ("look", "must be an object"),
    ],
)
@pytest.mark.parametrize("command", ["wake", "handle"])
def test_an_order_that_cannot_be_used_is_not_sent_nor_tried_again(
    api: WakeApi, command: str, payload: Any, told: str
) -> None:
    response = wake(api.url, payload, command=command)
    assert (response["status"], response["retry"], response["error_class"]) == ("error", False, "invalid_arguments")
    assert told in response["error"]
    assert api.received == []


@pytest.mark.parametrize("kind", ["agent.wake.accepted", "agent.completed", "agent.escalated"])
def test_what_is_told_of_a_run_wakes_no_other(api: WakeApi, kind: str) -> None:
    event = {"type": kind, "payload": {"goal": "do it all again", "run_id": RUN}}
    response = raw(a_request(command="handle", event=event, config={"url": api.url}))
    assert (response["status"], response["retry"]) == ("error", False)
    assert "must not wake the agent again" in response["error"]
    assert api.received == []


# Answers that are no acceptance


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        ("400", "the body is no JSON"),
        ("401", "compare `token` with the agent's http.tokens"),
        ("403", "needs the scope `wake`"),
        ("404", "no wake API at `url`"),
        ("409", f"another order has this wake_id (run {RUN}). This wake_id stands for another order"),
        ("413", "Shorten the context"),
        ("421", "http.allowed_hosts"),
        ("422", "constraints.max_steps: must be at least 1"),
        ("moved", "redirects are not followed"),
        ("elsewhere", "redirects are not followed"),
    ],
)
def test_a_refusal_is_explained_and_not_tried_again(api: WakeApi, behaviour: str, told: str) -> None:
    response = wake(api.at(behaviour))
    assert (response["status"], response["retry"]) == ("error", False)
    assert told in response["error"]
    assert len(api.received) == 1


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        ("408", "answered 408"),
        ("429", "asks for 7 s of patience"),
        ("500", "answered 500"),
        ("502", "answered 502"),
        ("503", "nothing was stored. Nothing is known to be accepted. It asks for 30 s of patience"),
        ("odd-patience", "answered 503"),
        ("not-json", "without accepting the order"),
        ("a-list", "without accepting the order"),
        ("deep", "without accepting the order"),
        ("not-accepted", "without accepting the order"),
        ("nearly-accepted", "without accepting the order"),
        ("no-run", "without accepting the order"),
        ("strange-run", "without accepting the order"),
        ("huge", "without accepting the order"),
        ("cut", "without accepting the order"),
        ("hang-up", "not speak HTTP properly"),
        ("no-http", "not speak HTTP properly"),
    ],
)
def test_what_may_pass_is_tried_again(api: WakeApi, behaviour: str, told: str) -> None:
    response = wake(api.at(behaviour))
    assert (response["status"], response["retry"]) == ("error", True)
    assert told in response["error"]
    assert "events" not in response


def test_an_agent_that_is_away_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    response = wake(f"http://127.0.0.1:{port}")
    assert (response["status"], response["retry"]) == ("error", True)
    assert "could not be reached: Connection refused" in response["error"]


@pytest.mark.parametrize("behaviour", ["silent", "drip"])
def test_the_response_comes_before_the_deadline_whatever_the_agent_does(api: WakeApi, behaviour: str) -> None:
    began = time.monotonic()
    response = wake(api.at(behaviour), seconds=1)
    assert time.monotonic() - began < 1
    assert (response["status"], response["retry"], response["error_class"]) == ("error", True, "timeout")
