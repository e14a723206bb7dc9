"""Callbacks over HTTP to a receiver that answers as told, and events on the wire of Ductile's relay."""

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.ductile.relay_wire import body_of, of_lifecycle
from ductile_gateway.ductile.settings import RelayPeerSettings
from ductile_gateway.outbound.notifications import Arrived, Gone, Never, NotYet, SendResult
from ductile_gateway.outbound.senders import open_callback_sender
from ductile_gateway.outbound.settings import OutboundSettings
from ductile_gateway.signatures import standard_headers
from groundwork.service.json_log import set_up
from tests.gateway.outbound.kit import KEY, SECRET, Receiver, an_event, read
from tests.gateway.parts import NOON, RUN
from tests.kit.fakes import FakeClock
from tests.kit.logs import logging_kept
from tests.ledger.kit import a_delivery


class Names:
    """A name server. Each look-up of a name gives the next of its answers, and in the end the last for ever."""

    def __init__(self, answers: dict[str, Sequence[Sequence[str]]]) -> None:
        self.answers = {name: list(found) for name, found in answers.items()}
        self.asked: list[str] = []

    def __call__(self, host: str, _: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.answers:
            raise OSError("no such name")
        found = self.answers[host]
        return found.pop(0) if len(found) > 1 else found[0]


LOCAL = Names({"hook.test": [["127.0.0.1"]]})


async def sent(
    url: str, *, names: Names = LOCAL, timeout_s: float = 5, tls: ssl.SSLContext | None = None, **network: Any
) -> SendResult:
    told = {"callbacks": {"secret": SECRET, "network": network}, "timeout_s": timeout_s}
    settings = OutboundSettings.model_validate(told)
    async with open_callback_sender(settings, clock=FakeClock(NOON), resolve=names, tls=tls) as sender:
        return await sender.send(replace(a_delivery(target="callback"), url=url))


async def allowed(receiver: Receiver, *, names: Names = LOCAL, timeout_s: float = 5) -> SendResult:
    url = f"http://hook.test:{receiver.port}/token?a=b"
    rules: dict[str, Any] = {"allow_private": True, "allow_http": True, "ports": (receiver.port,)}
    return await sent(url, names=names, timeout_s=timeout_s, **rules)


async def test_a_receiver_gets_the_signed_body_under_the_name_it_was_called_by(receiver: Receiver) -> None:
    assert await allowed(receiver) == Arrived()
    [request] = receiver.requests
    assert request.line == "POST /token?a=b HTTP/1.1"
    assert request.headers["host"] == f"hook.test:{receiver.port}"
    assert request.body == b'{"type": "agent.completed"}'
    expected = standard_headers(f"{RUN}:completed", request.body, [KEY], at=NOON)
    assert {name: request.headers[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("200 OK", Arrived()),
        ("204 No Content", Arrived()),
        ("410 Gone", Gone()),
        ("404 Not Found", NotYet("callback answered 404")),
        ("500 Oh", NotYet("callback answered 500")),
        ("429 Slow\r\nRetry-After: 120", NotYet("callback answered 429", 120.0)),
        ("503 Busy\r\nRetry-After: Sat, 21 Nov 2026 12:01:00 GMT", NotYet("callback answered 503", 60.0)),
        # A redirect is not followed.
        ("307 Go\r\nLocation: http://hook.test:{port}/elsewhere", NotYet("callback answered 307")),
    ],
)
async def test_the_status_decides(receiver: Receiver, status: str, verdict: SendResult) -> None:
    receiver.answer = f"HTTP/1.1 {status.format(port=receiver.port)}\r\nContent-Length: 0\r\n\r\n".encode()
    assert await allowed(receiver) == verdict
    assert len(receiver.requests) == 1


@pytest.mark.attack(78)
async def test_of_what_a_receiver_answers_nothing_but_its_status_is_kept(
    receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "\x1b]52;;x\x07 the answer of a stranger"
    head = f"HTTP/1.1 500 {told}\r\nX-Told: {told}\r\nRetry-After: {told}\r\nContent-Length: {len(told)}\r\n\r\n"
    receiver.answer = f"{head}{told}".encode()
    with logging_kept():
        set_up("DEBUG", "json", redact=tuple)
        verdict = await allowed(receiver)
    assert verdict == NotYet("callback answered 500")
    assert "stranger" not in capsys.readouterr().err


async def test_an_answer_that_drips_or_has_no_end_is_left_after_the_timeout(receiver: Receiver) -> None:
    receiver.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n" + b"x" * 100000
    assert await allowed(receiver, timeout_s=2) == Arrived()
    receiver.drips = True
    async with asyncio.timeout(3):
        assert isinstance(await allowed(receiver, timeout_s=0.5), NotYet)


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        ("localhost", ["::1", "127.0.0.1"]),
        ("[::1]", ["::1"]),
        ("0.0.0.0", ["0.0.0.0"]),  # noqa: S104
        ("[::ffff:127.0.0.1]", ["::ffff:127.0.0.1"]),
        ("hook.test", ["127.0.0.1"]),
        ("hook.test", ["93.184.216.34", "127.0.0.1"]),  # one private address among public ones
    ],
)
async def test_nothing_is_sent_into_private_networks(receiver: Receiver, host: str, addresses: list[str]) -> None:
    names = Names({name: [addresses] for name in (host.strip("[]"), "::ffff:7f00:1")})
    verdict = await sent(f"http://{host}:{receiver.port}/", names=names, allow_http=True, ports=(receiver.port,))
    assert (isinstance(verdict, Never), receiver.requests) == (True, [])


async def test_a_name_is_looked_up_once_and_what_was_checked_is_connected_to(receiver: Receiver) -> None:
    names = Names({"hook.test": [["127.0.0.1"], ["169.254.169.254"]]})
    assert await allowed(receiver, names=names) == Arrived()
    assert names.asked == ["hook.test"]
    verdict = await allowed(receiver, names=names)
    assert isinstance(verdict, Never), "the second try looks the name up again, and checks again"


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed: install it to test TLS")
@pytest.mark.parametrize(("host", "arrives"), [("hook.test", True), ("other.test", False)])
async def test_the_certificate_must_be_that_of_the_name_and_not_of_the_address(
    tmp_path: Path, host: str, arrives: bool
) -> None:
    held, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    name = ("-subj", "/CN=hook.test", "-addext", "subjectAltName=DNS:hook.test")
    command = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    made = (*command, *name, "-keyout", str(key), "-out", str(held))
    await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(held, key)
    trusting = ssl.create_default_context(cafile=held)
    async with Receiver().listening(server) as receiver:
        url, names = f"https://{host}:{receiver.port}/", Names({host: [["127.0.0.1"]]})
        verdict = await sent(url, names=names, tls=trusting, allow_private=True, ports=(receiver.port,))
    assert isinstance(verdict, Arrived if arrives else NotYet)
    assert len(receiver.requests) == int(arrives)


PEER = RelayPeerSettings.model_validate({"peer": "agent-gateway", "secret": "a-relay-secret-for-tests"})


@pytest.mark.attack(29)
def test_an_ending_has_its_type_its_dedupe_key_and_our_name_and_is_whole() -> None:
    event = an_event(has_callback=True, outcome="x" * 100_000)
    envelope = json.loads(body_of(of_lifecycle(read(event)), PEER.peer))
    assert envelope["event"] == {
        "type": "agent.completed",
        "payload": {"run_id": RUN, "goal": "Find the answer — ü.", "outcome": "x" * 100_000},
        "dedupe_key": f"agentic:run:{RUN}:completed",
    }
    assert envelope["origin"]["instance"] == "agent-gateway"
