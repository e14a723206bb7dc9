"""Callbacks over HTTP, to allowed destinations alone, and events in the form of Ductile's relay."""

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.webhooks import destinations
from ductile_gateway.webhooks.destinations import RESOLVERS
from ductile_gateway.webhooks.notifications import Try, notifications_of
from ductile_gateway.webhooks.sender import open_sender
from ductile_gateway.webhooks.settings import NetworkSettings, OutboundSettings, ReceiverSettings
from ductile_gateway.webhooks.signatures import standard_headers
from groundwork.service.json_log import set_up
from tests.gateway.outbound.kit import KEY, SECRET, an_event, read
from tests.gateway.parts import NOON, RUN
from tests.kit.fakes import still
from tests.kit.http_server import HANG_UP, WireServer
from tests.kit.logs import logging_kept
from tests.ledger.kit import a_delivery


class Names:
    """A name server with one answer per lookup; the last one repeats."""

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
) -> Try:
    told = {"callbacks": {"secret": SECRET, "network": network}, "timeout_s": timeout_s}
    settings = OutboundSettings.model_validate(told)
    still(NOON)
    async with open_sender(settings, resolve=names, tls=tls) as sender:
        return await sender.send(replace(a_delivery(target="callback"), url=url))


async def allowed(to: WireServer | int, *, names: Names = LOCAL, timeout_s: float = 5) -> Try:
    """Sends to a site or port with private networks allowed."""
    port = to if isinstance(to, int) else to.port
    rules: dict[str, Any] = {"allow_private": True, "allow_http": True, "ports": (port,)}
    return await sent(f"http://hook.test:{port}/token?a=b", names=names, timeout_s=timeout_s, **rules)


@pytest.fixture
def site() -> Iterator[WireServer]:
    with WireServer(lambda _: (200, {}, b"")) as site:
        yield site


async def test_a_receiver_gets_the_signed_body_under_the_name_it_was_called_by(site: WireServer) -> None:
    assert await allowed(site) == Try("arrived")
    (heard,) = site.calls
    assert (heard.method, heard.path, heard.headers["host"]) == ("POST", "/token?a=b", f"hook.test:{site.port}")
    assert heard.raw == b'{"type": "agent.completed"}'
    expected = standard_headers(f"{RUN}:completed", heard.raw, [KEY], at=NOON)
    assert {name: heard.headers[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("status", "headers", "verdict"),
    [
        (200, {}, Try("arrived")),
        (204, {}, Try("arrived")),
        (410, {}, Try("dead", "callback answered 410")),
        (404, {}, Try("put_off", "callback answered 404")),
        (500, {}, Try("put_off", "callback answered 500")),
        (429, {"Retry-After": "120"}, Try("put_off", "callback answered 429", 120.0)),
        (503, {"Retry-After": "Sat, 21 Nov 2026 12:01:00 GMT"}, Try("put_off", "callback answered 503", 60.0)),
        # A redirect is not followed.
        (307, {"Location": "/elsewhere"}, Try("put_off", "callback answered 307")),
    ],
)
async def test_the_status_decides(site: WireServer, status: int, headers: dict[str, str], verdict: Try) -> None:
    site.respond = lambda _: (status, headers, b"")
    assert await allowed(site) == verdict
    assert len(site.calls) == 1


async def test_of_what_a_receiver_answers_nothing_but_its_status_is_kept(
    site: WireServer, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "\x1b]52;;x\x07 the answer of a stranger"
    head = f"HTTP/1.1 500 {told}\r\nX-Told: {told}\r\nRetry-After: {told}\r\nContent-Length: {len(told)}\r\n\r\n"
    site.respond = lambda _: replace(HANG_UP, body=f"{head}{told}".encode())
    with logging_kept():
        set_up("DEBUG", "json")
        verdict = await allowed(site)
    assert verdict == Try("put_off", "callback answered 500")
    assert "stranger" not in capsys.readouterr().err


async def test_an_answer_that_drips_or_has_no_end_is_left_after_the_timeout(site: WireServer) -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                writer.write(b"X: y\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        hung_up.set()

    hung_up = asyncio.Event()
    site.respond = lambda _: (200, {"Content-Length": "1000000000000"}, b"x" * 100000)
    assert await allowed(site, timeout_s=2) == Try("arrived")
    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server, asyncio.timeout(3):
        assert (await allowed(server.sockets[0].getsockname()[1], timeout_s=0.5)).outcome == "put_off"
        await hung_up.wait()


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        ("[::ffff:127.0.0.1]", ["::ffff:127.0.0.1"]),
        ("hook.test", ["127.0.0.1"]),
        ("hook.test", ["93.184.216.34", "127.0.0.1"]),  # one private address among public ones
    ],
)
async def test_nothing_is_sent_into_private_networks(site: WireServer, host: str, addresses: list[str]) -> None:
    names = Names({name: [addresses] for name in (host.strip("[]"), "::ffff:7f00:1")})
    verdict = await sent(f"http://{host}:{site.port}/", names=names, allow_http=True, ports=(site.port,))
    assert (verdict.outcome, site.calls) == ("dead", [])


async def test_a_name_is_looked_up_once_and_what_was_checked_is_connected_to(site: WireServer) -> None:
    names = Names({"hook.test": [["127.0.0.1"], ["169.254.169.254"]]})
    assert await allowed(site, names=names) == Try("arrived")
    assert names.asked == ["hook.test"]
    verdict = await allowed(site, names=names)
    assert verdict.outcome == "dead", "the second try looks the name up again, and checks again"


async def test_a_subscription_is_told_where_it_is_now_while_slow_names_of_callers_are_looked_up(
    site: WireServer,
) -> None:
    answered = threading.Event()

    def resolve(host: str, _: int) -> Sequence[str]:
        if host == "slow.test":
            answered.wait(10)
        return ["127.0.0.1"]

    network = {"allow_private": True, "allow_http": True, "ports": [site.port]}
    moved = {"url": f"http://hook.test:{site.port}/", "secret": SECRET, "network": network}
    told = {"callbacks": {"secret": SECRET}, "subscriptions": {"a": moved}, "timeout_s": 5}
    callback = replace(a_delivery(target="callback"), url="https://slow.test/")
    async with open_sender(OutboundSettings.model_validate(told), resolve=resolve) as sender:
        slow = [asyncio.ensure_future(sender.send(callback)) for _ in range(2 * RESOLVERS)]
        await asyncio.sleep(0)
        assert await sender.send(a_delivery(target="subscription:a")) == Try("arrived")
        answered.set()
        await asyncio.gather(*slow)


async def test_a_subscription_that_its_own_settings_forbid_waits_until_they_are_mended(site: WireServer) -> None:
    told = {"subscriptions": {"a": {"url": site.url, "secret": SECRET}}}
    async with open_sender(OutboundSettings.model_validate(told)) as sender:
        verdict = await sender.send(a_delivery(target="subscription:a"))
    assert (verdict.outcome, "callbacks go by https; allow_http allows others" in verdict.why) == ("put_off", True)


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
    with WireServer(lambda _: (200, {}, b""), server) as site:
        url, names = f"https://{host}:{site.port}/", Names({host: [["127.0.0.1"]]})
        verdict = await sent(url, names=names, tls=trusting, allow_private=True, ports=(site.port,))
    assert verdict.outcome == ("arrived" if arrives else "put_off")
    assert len(site.calls) == int(arrives)


def test_an_ending_has_its_type_its_dedupe_key_and_our_name_and_is_whole() -> None:
    relay = {"url": "http://localhost:1", "peer": "agent-gateway", "secret": "a-relay-secret-for-tests"}
    event = an_event(has_callback=True, outcome="x" * 100_000)
    [owed] = notifications_of(read(event), OutboundSettings.model_validate({"relay": relay}), at=NOON)
    envelope = json.loads(owed.body)
    assert envelope["event"] == {
        "type": "agent.completed",
        "payload": {"run_id": RUN, "goal": "Find the answer — ü.", "outcome": "x" * 100_000},
        "dedupe_key": f"agentic:run:{RUN}:completed",
    }
    assert envelope["origin"]["instance"] == "agent-gateway"


STRICT = NetworkSettings()
LENIENT = NetworkSettings(allow_private=True, allow_http=True, ports=(8080,))
ODD = r"""
    http://example.org/ ftp://example.org/ //example.org/ https:///path https://user@example.org/
    https://user:secret@example.org/ https://@example.org/ https://example.org:22/ https://example.org:99999/
    https://exa\mple.org/ https://example.org\@127.0.0.1/ https://exämple.org/ https://[fe80::1%25eth0]/ https://[::1/
"""
LONG, SPACED, BROKEN = f"https://example.org/{'x' * 3000}", "https://exam ple.org/", "https://example.org/\r\nHost: x"


@pytest.mark.parametrize("url", [*ODD.split(), SPACED, BROKEN, LONG])
def test_a_url_that_is_no_plain_https_address_of_a_host_is_refused(url: str) -> None:
    with pytest.raises(destinations.Forbidden):
        destinations.read_destination(url, STRICT)


PRIVATE = "127.0.0.1 127.9.9.9 ::1 10.0.0.1 172.16.0.1 192.168.1.1 fd00::1".split()  # noqa: SIM905
SPECIAL = """
    0.0.0.0 :: 169.254.169.254 fe80::1 fec0::1 fe80::1%eth0 100.64.0.1 192.0.0.8 198.18.0.1 224.0.0.1 ff02::1 240.0.0.1
    255.255.255.255 ::ffff:127.0.0.1 ::ffff:8.8.8.8 64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::1 2002:7f00:1::
    2002:808:808:: 2001:0:1:1::1 ::127.0.0.1 ::ffff:0:127.0.0.1 2001:db8::1
"""
NEVER = [*SPECIAL.split(), "not an address"]


@pytest.mark.parametrize(
    ("address", "rules"), [*((one, STRICT) for one in (*PRIVATE, *NEVER)), *((one, LENIENT) for one in NEVER)]
)
def test_an_address_that_is_not_public_is_refused_and_metadata_multicast_and_disguises_everywhere(
    address: str, rules: NetworkSettings
) -> None:
    assert not destinations.is_allowed(address, rules)


RULES = ReceiverSettings.model_validate({"secret": SECRET})
ADDRESSES = {
    "public.example": ["93.184.216.34"],
    "inside.example": ["10.0.0.7"],
    "mixed.example": ["93.184.216.34", "127.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
    "disguised.example": ["64:ff9b::7f00:1"],
}


def resolve(host: str, port: int) -> Sequence[str]:
    if host not in ADDRESSES and "example" in host:
        raise OSError("no such name")
    return ADDRESSES.get(host) or destinations.resolve_name(host, port)


INSIDE = """
    https://127.0.0.1/hook https://localhost/hook https://[::1]/hook https://2130706433/hook https://0x7f.1/hook
    https://0177.0.0.1/hook https://127.1/hook https://0/hook
    https://169.254.169.254/latest https://[fd00:ec2::254]/latest https://inside.example/hook
    https://mixed.example/hook https://metadata.google.internal/computeMetadata https://disguised.example/hook
"""


@pytest.mark.attack(70, 71, 72, 73, 76)
@pytest.mark.parametrize(
    ("url", "rules", "said"),
    [
        *((url, STRICT, "not a public") for url in INSIDE.split()),
        ("https://public.example/told", STRICT, ""),
        ("https://unknown.example/told", STRICT, ""),
        ("https://10.0.0.7/told", STRICT, "10.0.0.7 is not a public address"),
        ("https://inside.example/told", STRICT, "inside.example is not a public address"),
        ("https://printer.local/", STRICT, "not a public name"),
        ("https://metadata.unknown.internal/", STRICT, "not a public name"),
        ("http://localhost:8080/told", LENIENT, ""),
        ("https://169.254.169.254/latest", LENIENT, "not a public address"),
        ("http://public.example/told", STRICT, "callbacks go by https"),
        ("https://public.example/", NetworkSettings(hosts=("Public.example",)), ""),
        ("https://other.example/", NetworkSettings(hosts=("Public.example",)), "hosts"),
    ],
)
async def test_what_tells_against_a_url_is_said_before_anything_is_sent(
    url: str, rules: NetworkSettings, said: str
) -> None:
    flaw = await destinations.callback_check(RULES.model_copy(update={"network": rules}), resolve)(url)
    assert (said in flaw, bool(flaw)) == (True, bool(said))


async def test_a_name_server_that_does_not_answer_holds_up_no_wake() -> None:
    answered = threading.Event()

    def slow(host: str, port: int) -> Sequence[str]:
        answered.wait(10)
        return resolve(host, port)

    began = time.monotonic()
    assert await destinations.callback_check(RULES, slow)("https://inside.example/hook") == ""
    assert time.monotonic() - began < 5
    answered.set()
