"""The agentic-wake plugin: it succeeds exactly when the agent has accepted, says what to do when it has not, and sends
its token only where it may. The first part of the path says how the agent answers."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.http_server import DRIP, HANG_UP, NO_HTTP, SILENT, Answer, Call, WireServer
from tests.plugins.asking import SHIPPED, ask, refused, responded

WAKE = SHIPPED / "agentic-wake"
TOKEN = "a-token-of-the-agent-0123456789"  # noqa: S105 - of a fake that lives for one test run
RUN = "01JD0000000000000000000000"
ACCEPTED = {"accepted": True, "run_id": RUN, "wake_id": "as-sent", "status_url": f"/v1/runs/{RUN}"}
ORDER: dict[str, Any] = {
    "wake_id": "daily-2026-11-22",
    "goal": "Write a critique of the page.\nIn Grüßen 😀.",
    "context": {"tone": "kind", "pages": ["a", 1, None, True]},
    "constraints": {"max_steps": 5, "max_cost_usd": 0.5},
    "callback": "https://hooks.example.org/agent",
}
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def accepted(**changes: Any) -> bytes:
    return json.dumps(ACCEPTED | changes).encode()


def error(code: str, message: str, **more: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message, **more}}).encode()


UNACCEPTED = "without accepting the order"
REFUSALS: dict[str, tuple[Answer, str]] = {
    "400": ((400, {}, error("not_json", "the body is no JSON")), "the body is no JSON"),
    "401": ((401, {}, error("unauthorized", "send a token")), "compare `token` with the agent's http.tokens"),
    "403": ((403, {}, error("forbidden", "token dashboards has no scope `wake`")), "needs the scope `wake`"),
    "404": ((404, {"Content-Type": "text/html"}, b"<h1>Not here</h1>"), "no wake API at `url`"),
    "409": (
        (409, {}, error("wake_id_taken", "another order has this wake_id", field="wake_id", run_id=RUN)),
        f"another order has this wake_id (run {RUN}). This wake_id stands for another order",
    ),
    "413": ((413, {"Connection": "close"}, error("too_large", "the body is too large")), "Shorten the context"),
    "421": ((421, {}, error("wrong_host", "not this Host")), "http.allowed_hosts"),
    "422": ((422, {}, error("invalid", "constraints.max_steps: must be 1")), "constraints.max_steps: must be 1"),
    "moved": ((307, {"Location": "/v1/wake"}, b""), "redirects are not followed"),
    "elsewhere": ((302, {"Location": "http://192.0.2.1/v1/wake"}, b""), "redirects are not followed"),
}
PASSING: dict[str, tuple[Answer, str]] = {
    "408": ((408, {}, error("too_slow", "the body came too slowly")), "answered 408"),
    "429": ((429, {"Retry-After": "7"}, error("busy", "too many")), "asks for 7 s of patience"),
    "500": ((500, {}, b"broken"), "answered 500"),
    "503": (
        (503, {"Retry-After": "30"}, error("try_again", "not done, and nothing was stored")),
        "nothing was stored. Nothing is known to be accepted. It asks for 30 s of patience",
    ),
    "not-json": ((202, {}, b"<p>welcome"), UNACCEPTED),
    "deep": ((202, {}, b"[" * 60_000), UNACCEPTED),
    "not-accepted": ((202, {}, accepted(accepted=False)), UNACCEPTED),
    "no-run": ((202, {}, b'{"accepted": true}'), UNACCEPTED),
    "strange-run": ((202, {}, accepted(run_id="../../etc/passwd")), UNACCEPTED),
    "huge": ((202, {}, accepted(padding="x" * 5_000_000)), UNACCEPTED),
    "cut": ((202, {"Content-Length": "500"}, accepted()[:-20]), UNACCEPTED),
    "hang-up": (HANG_UP, "not speak HTTP properly"),
    "no-http": (NO_HTTP, "not speak HTTP properly"),
}
ANSWERS = {name: answer for name, (answer, _) in (REFUSALS | PASSING).items()} | {"silent": SILENT, "drip": DRIP}


def agent(heard: Call) -> Answer:
    behaviour = heard.path.strip("/").removesuffix("v1/wake").strip("/")
    token = heard.headers.get("authorization", "").removeprefix("Bearer ")
    if behaviour == "tells-token":
        return 422, {}, error("invalid", f"what is {token}?", run_id=token)
    if behaviour == "runs-as-token":
        return 202, {}, accepted(run_id=token)
    return ANSWERS[behaviour] if behaviour else (202, {}, accepted())


@pytest.fixture
def api() -> Iterator[WireServer]:
    with WireServer(agent) as api:
        yield api


def wake(url: Any, payload: Any = None, *, command: str = "wake", seconds: float = 20, **config: Any) -> dict[str, Any]:
    settings = {"url": url, "token": TOKEN} | config
    return ask(WAKE, ORDER if payload is None else payload, command=command, config=settings, seconds=seconds)


def raw(**changes: Any) -> bytes:
    whole = {"protocol": 2, "job_id": "job-1", "command": "wake", "config": {"url": "http://127.0.0.1:9"}}
    return json.dumps(whole | {"deadline_at": "2099-01-01T00:00:00.123456789Z"} | changes).encode()


def order(heard: Call) -> Any:
    return json.loads(heard.raw)


@pytest.mark.parametrize("command", ["wake", "handle"])
def test_an_order_is_sent_as_it_was_given_with_the_token(api: WireServer, command: str) -> None:
    response = wake(api.url, command=command)
    assert response["status"] == "ok", response
    assert wake(api.url, command=command)["status"] == "ok"
    sent, again = api.calls
    assert (sent.path, order(sent), again.raw) == ("/v1/wake", ORDER, sent.raw)
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"
    assert (sent.headers["content-type"], sent.headers["content-length"]) == ("application/json", str(len(sent.raw)))


def test_with_a_goal_in_the_settings_what_comes_is_what_the_run_is_about_once_for_each_job(api: WireServer) -> None:
    failed = {"job_id": "0b9c", "plugin": "backup", "error": "no space left", "goal": "erase it"}
    loud = failed | {"ductile_plugin": "x", "reason": "x" * 100_000}
    wake(api.url, loud, command="handle", goal="Find out why.", untrusted=True)
    about = {"context": failed | {"event": "api.trigger", "reason": f"{'x' * 4000}…"}, "wake_id": "0b9c"}
    assert order(api.calls[0]) == {"goal": "Find out why.", "untrusted": True} | about


PLACES: list[tuple[dict[str, Any], Any, str | None]] = [
    ({}, {"traceparent": TRACEPARENT}, TRACEPARENT),
    ({"traceparent": TRACEPARENT}, {"traceparent": "of the pipeline"}, TRACEPARENT),
    ({"traceparent": "\r\nX-Evil: 1"}, {"traceparent": ["no text"]}, None),
    ({}, None, None),
]


def test_a_place_in_a_trace_is_handed_on_beside_the_order(api: WireServer) -> None:
    for payload, context, sent in PLACES:
        config = {"url": api.url, "token": TOKEN}
        response = responded(WAKE, raw(config=config, payload={"goal": "look"} | payload, context=context))
        assert response["status"] == "ok", response
        assert api.calls[-1].headers.get("traceparent") == sent
        assert order(api.calls[-1]) == {"goal": "look", "wake_id": "ductile:job-1"}


def look(**more: Any) -> dict[str, Any]:
    return {"goal": "look"} | more


ORDERS: list[tuple[Any, str]] = [
    ({}, "goal is missing"),
    *(({"goal": odd}, "goal is missing") for odd in (None, "", " \n\t\u2003")),
    *(({"goal": odd}, "goal must be text") for odd in (7, ["look"])),
    ({"goal": "é" * 16385}, "at most 32768 bytes"),
    ({"goal": "a\0b"}, "NUL"),
    ({"goal": "a\ud800"}, "cannot carry"),
    (look(context={"n": float("nan")}), "cannot carry"),
    (look(context="kindly"), "context must be an object"),
    (look(constraints=[5]), "constraints must be an object"),
    (look(callback={}), "callback must be text"),
    (look(wake_id=5), "wake_id must be text"),
    *((look(wake_id=odd), "wake_id must be 1 to 128") for odd in ("two words", "", "x\n")),
    (look(context={"page": "x" * 256 * 1024}), "at most 262144 bytes"),
    (look(untrusted="no"), "untrusted must be true or false"),
    (["look"], "must be an object"),
    ("look", "must be an object"),
]


@pytest.mark.parametrize("command", ["wake", "handle"])
def test_an_order_that_cannot_be_used_is_not_sent_nor_tried_again(api: WireServer, command: str) -> None:
    for payload, told in ORDERS:
        assert told in refused(wake(api.url, payload, command=command))
    assert api.calls == []


def test_what_is_told_of_a_run_wakes_no_other(api: WireServer) -> None:
    event = {"type": "agent.completed", "payload": {"goal": "do it all again", "run_id": RUN}}
    response = responded(WAKE, raw(command="handle", event=event, config={"url": api.url}))
    assert (response["status"], response["retry"]) == ("error", False)
    assert "must not wake the agent again" in response["error"]
    assert api.calls == []


REQUESTS = [
    *(b"", b"no JSON", b"\xff", b"[]", b"null", b"[" * 100_000, raw(command=None), raw(job_id=7)),
    *(raw(deadline_at="soon"), raw(deadline_at="2099-01-01T00:00:00"), raw(config=["url"])),
    *(raw(event="agent.completed"), raw(secrets="x")),
]


def test_what_is_no_request_is_answered_with_one_error() -> None:
    for request in REQUESTS:
        response = responded(WAKE, request)
        assert (response["status"], response["retry"]) == ("error", False)
        assert response["error"] == "what came on stdin is not a request of plugin protocol 2"


TOO_OLD = "import runpy, sys; sys.version_info = (3, 10, 12); runpy.run_path('run.py', run_name='__main__')"


@pytest.mark.parametrize("plugin", ["agentic-wake", "agentic-run"])
def test_a_python_that_is_too_old_is_told_and_not_tried_again(plugin: str) -> None:
    command, environment = [sys.executable, "-c", TOO_OLD], os.environ | {"PYTHONPATH": str(SHIPPED / plugin)}
    done = subprocess.run(command, cwd=SHIPPED / plugin, env=environment, check=True, capture_output=True)
    response = json.loads(done.stdout)
    assert (response["status"], response["retry"], "3.11 or newer" in response["error"]) == ("error", False, True)


NO_ADDRESS = "must be the address of the agent"
ADDRESSES: list[tuple[Any, str]] = [
    *((url, NO_ADDRESS) for url in (None, 8700, "", "http://", "http://127.0.0.1/\r\nX-Evil: 1")),
    *((url, "http:// or https://") for url in ("127.0.0.1:8700", "file:///etc/passwd", "ftp://127.0.0.1/")),
    *((url, "not a valid address") for url in ("http://127.0.0.1:99999", "http://[::1")),
    (f"https://{'x' * 64}.example.org", "not a valid address"),
    ("http://me:secret@127.0.0.1", "user name"),
    ("http://127.0.0.1/?next=1", "a query"),
    ("http://127.0.0.1/#part", "a fragment"),
    *((f"http://{host}", "without TLS") for host in ("192.0.2.1:8700", "agent.example.org")),
    *((f"http://{host}.example.org", "without TLS") for host in ("localhost", "127.0.0.1")),
]


@pytest.mark.parametrize("command", ["wake", "health"])
def test_an_address_that_must_not_be_asked_is_a_fault_of_the_settings(command: str) -> None:
    for url, told in ADDRESSES:
        response = wake(url, {"goal": "look"} if command == "wake" else {}, command=command)
        assert told in refused(response, "misconfigured")


def test_a_refusal_is_explained_and_not_tried_again_and_what_may_pass_is(api: WireServer) -> None:
    for answers, retry in ((REFUSALS, False), (PASSING, True)):
        for behaviour, (_, told) in answers.items():
            api.calls.clear()
            response = wake(f"{api.url}/{behaviour}")
            assert (response["status"], response["retry"], told in response["error"]) == ("error", retry, True), (
                response
            )
            assert (len(api.calls), "events" in response) == (1, False)


def test_the_response_comes_before_the_deadline_wherever_the_agent_is(api: WireServer, unused_tcp_port: int) -> None:
    for behaviour in ("silent", "drip"):
        began = time.monotonic()
        response = wake(f"{api.url}/{behaviour}", seconds=1)
        assert time.monotonic() - began < 1
        assert refused(response, "timeout", retry=True)
    away = wake(f"http://127.0.0.1:{unused_tcp_port}")
    assert (away["retry"], "could not be reached: Connection refused" in away["error"]) == (True, True)


def test_the_token_may_come_from_the_vault_or_from_a_file(api: WireServer, tmp_path: Path) -> None:
    secrets = {"agentic-wake-token": TOKEN, "of-the-night-shift": f"{TOKEN}-2\n"}
    for config in (dict[str, str](), {"secret": "of-the-night-shift"}):
        responded(WAKE, raw(config={"url": api.url} | config, payload={"goal": "look"}, secrets=secrets))
    assert [one.headers["authorization"] for one in api.calls] == [f"Bearer {TOKEN}", f"Bearer {TOKEN}-2"]
    api.calls.clear()
    place = tmp_path / "wake.token"
    response = wake(api.url, token=None, token_file=str(place))
    assert (response["error"], api.calls) == (f"token_file {place} cannot be read as text", [])
    place.write_text(f"{TOKEN}\n")
    assert wake(api.url, token=None, token_file=str(place))["status"] == "ok"
    assert api.calls[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_token_that_is_none_is_not_sent_nor_told(api: WireServer) -> None:
    for token in ("two words", "line\r\nX-Evil: 1", "schlüssel", "x" * 513, 7, ["x"], {"a": 1}):
        assert ("X-Evil" in refused(wake(api.url, token=token), "misconfigured"), api.calls) == (False, [])


@pytest.mark.parametrize("behaviour", ["tells-token", "runs-as-token", "401", "silent", "hang-up", "moved"])
def test_the_token_is_never_told(api: WireServer, behaviour: str) -> None:
    response = wake(f"{api.url}/{behaviour}", timeout_seconds=0.3)
    assert response["status"] == "error"
    assert api.calls[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in json.dumps(response)
