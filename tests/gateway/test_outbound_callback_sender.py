"""Callbacks over HTTP, to a receiver that answers as told: what it gets, and where nothing is ever sent."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.outbound.notifications import Arrived, Gone, Never, Notification, NotYet, SendResult
from ductile_gateway.outbound.senders import open_callback_sender
from ductile_gateway.outbound.settings import CallbackSettings, NetworkSettings, OutboundSettings
from ductile_gateway.signatures import standard_headers
from groundwork.service.json_log import set_up
from tests.gateway.outbound_parts import KEY, SECRET, Receiver
from tests.gateway.parts import NOON, RUN, StoppedClock
from tests.kit.logs import logging_kept


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver().listening() as receiver:
        yield receiver


def a_delivery(url: str) -> Notification:
    key = f"agentic:run:{RUN}:completed"
    return Notification(
        target="callback",
        lane="callback:here",
        key=key,
        run_id=RUN,
        type="agent.completed",
        url=url,
        body=b'{"type":"agent.completed"}',
        accepted_at=NOON,
    )


class Names:
    """A name server. Each look-up of a name gives the next of its answers, and in the end the last for ever."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(found) for name, found in answers.items()}
        self.asked: list[str] = []

    def __call__(self, host: str, _: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.answers:
            raise OSError("no such name")
        found = self.answers[host]
        return found.pop(0) if len(found) > 1 else found[0]


LOCAL = Names(hook_test=[["127.0.0.1"]])


async def sent(
    url: str,
    *,
    names: Names = LOCAL,
    signed: bool = True,
    timeout_s: float = 5,
    tls: ssl.SSLContext | None = None,
    **network: Any,
) -> SendResult:
    settings = OutboundSettings(
        callbacks=CallbackSettings(
            secret=SECRET if signed else None,
            network=NetworkSettings.model_validate(network),
        ),
        timeout_s=timeout_s,
    )
    async with open_callback_sender(settings, clock=StoppedClock(), resolve=names, tls=tls) as sender:
        return await sender.send(a_delivery(url))


async def allowed(receiver: Receiver, url: str = "", *, names: Names = LOCAL, timeout_s: float = 5) -> SendResult:
    """Sent where private networks are allowed."""
    url = url or f"http://hook.test:{receiver.port}/token?a=b"
    rules: dict[str, Any] = {"allow_private": True, "allow_http": True, "ports": (receiver.port,)}
    return await sent(url, names=names, timeout_s=timeout_s, **rules)


async def test_a_receiver_gets_the_signed_body_under_the_name_it_was_called_by(receiver: Receiver) -> None:
    assert await allowed(receiver) == Arrived()
    [request] = receiver.requests
    assert request.line == "POST /token?a=b HTTP/1.1"
    assert request.headers["host"] == f"hook.test:{receiver.port}"
    assert request.body == b'{"type":"agent.completed"}'
    expected = standard_headers(f"agentic:run:{RUN}:completed", request.body, [KEY], at=NOON)
    assert {name: request.headers[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("200 OK", Arrived()),
        ("204 No Content", Arrived()),
        ("410 Gone", Gone()),
        ("404 Not Found", NotYet("callback:here answered 404")),
        ("500 Oh", NotYet("callback:here answered 500")),
        ("429 Slow\r\nRetry-After: 120", NotYet("callback:here answered 429", 120.0)),
        ("503 Busy\r\nRetry-After: Sat, 21 Nov 2026 12:01:00 GMT", NotYet("callback:here answered 503", 60.0)),
    ],
)
async def test_the_status_decides(receiver: Receiver, status: str, verdict: SendResult) -> None:
    receiver.answer = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()
    assert await allowed(receiver) == verdict


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
    assert isinstance(verdict, NotYet)
    assert "stranger" not in f"{verdict} {capsys.readouterr().err}"


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    where = f"http://hook.test:{receiver.port}/elsewhere"
    receiver.answer = f"HTTP/1.1 307 Go\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode()
    assert await allowed(receiver) == NotYet("callback:here answered 307")
    assert len(receiver.requests) == 1


async def test_an_answer_that_drips_is_left_after_the_timeout(receiver: Receiver) -> None:
    receiver.drips = True
    async with asyncio.timeout(3):
        assert isinstance(await allowed(receiver, timeout_s=0.5), NotYet)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "hook.test"])  # noqa: S104
async def test_nothing_is_sent_into_private_networks(receiver: Receiver, host: str) -> None:
    names = Names(
        **{
            "127_0_0_1": [["127.0.0.1"]],
            "localhost": [["::1", "127.0.0.1"]],
            "::1": [["::1"]],
            "0_0_0_0": [["0.0.0.0"]],  # noqa: S104
            "::ffff:127_0_0_1": [["::ffff:127.0.0.1"]],
            "::ffff:7f00:1": [["::ffff:127.0.0.1"]],
            "hook_test": [["127.0.0.1"]],
        }
    )
    verdict = await sent(f"http://{host}:{receiver.port}/", names=names, allow_http=True, ports=(receiver.port,))
    assert isinstance(verdict, Never)
    assert not receiver.requests


async def test_a_name_is_looked_up_once_and_what_was_checked_is_connected_to(receiver: Receiver) -> None:
    names = Names(hook_test=[["127.0.0.1"], ["169.254.169.254"]])
    assert await allowed(receiver, names=names) == Arrived()
    assert names.asked == ["hook.test"]
    verdict = await allowed(receiver, names=names)
    assert isinstance(verdict, Never), "the second try looks the name up again, and checks again"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Certificate and key of hook.test, signed by itself."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed: install it to test TLS")
    held, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    name = ("-subj", "/CN=hook.test", "-addext", "subjectAltName=DNS:hook.test")
    command = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run((*command, *name, "-keyout", key, "-out", held), check=True, capture_output=True)
    return held, key


@pytest.mark.parametrize(("host", "arrives"), [("hook.test", True), ("other.test", False)])
async def test_the_certificate_must_be_that_of_the_name_and_not_of_the_address(
    certificate: tuple[Path, Path], host: str, arrives: bool
) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=certificate[0])
    names = Names(hook_test=[["127.0.0.1"]], other_test=[["127.0.0.1"]])
    async with Receiver().listening(server) as receiver:
        url = f"https://{host}:{receiver.port}/"
        verdict = await sent(url, names=names, tls=trusting, allow_private=True, ports=(receiver.port,))
    assert isinstance(verdict, Arrived if arrives else NotYet)
    assert len(receiver.requests) == int(arrives)


async def test_a_name_with_one_private_address_among_public_ones_is_refused(receiver: Receiver) -> None:
    names = Names(hook_test=[["93.184.216.34", "127.0.0.1"]])
    verdict = await sent(f"http://hook.test:{receiver.port}/", names=names, allow_http=True, ports=(receiver.port,))
    assert verdict == Never("127.0.0.1 is not a public address; allow_private allows private ones")


async def test_an_answer_without_end_is_not_read(receiver: Receiver) -> None:
    receiver.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n" + b"x" * 100000
    assert await allowed(receiver, timeout_s=2) == Arrived()


async def test_nothing_of_an_answer_is_kept_but_its_status(receiver: Receiver) -> None:
    receiver.answer = b"HTTP/1.1 500 <b>Look\x1b[2J\r\nX-Told: me\r\nContent-Length: 7\r\n\r\n<script"
    assert await allowed(receiver) == NotYet("callback:here answered 500")
