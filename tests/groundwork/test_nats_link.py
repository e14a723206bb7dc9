"""The link to the bus, against a real server that stays, fills up, goes away and comes back."""

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.publishing import Refused
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Misconfigured, TryAgain, Unreachable
from tests.kit.bus import a_stream, server_with
from tests.kit.waiting import until

RIGHT, WRONG = "right", "wr0ng"


async def stored(link: NatsLink) -> int:
    return (await link.jetstream.stream_info("WORK")).state.messages


async def test_the_same_id_from_many_tasks_at_once_is_stored_once(link: NatsLink) -> None:
    await a_stream(link)
    results = await asyncio.gather(*(link.publish("work.a", b"x", msg_id="one", headers={}) for _ in range(50)))
    assert sum(not one.duplicate for one in results) == 1
    assert await stored(link) == 1


async def test_a_subject_that_no_stream_takes_is_told_at_once(link: NatsLink) -> None:
    begin = time.monotonic()
    with pytest.raises(Misconfigured, match=r"no stream takes nobody\.home"):
        await link.publish("nobody.home", b"", msg_id="one", headers={})
    assert time.monotonic() - begin < 2.0


async def test_a_stream_that_gets_room_in_time_stores_the_waiting_message(link: NatsLink) -> None:
    await a_stream(link, max_bytes=1000)
    await link.publish("work.a", b"x" * 700, msg_id="one", headers={})
    waiting = asyncio.create_task(link.publish("work.a", b"x" * 700, msg_id="two", headers={}))
    await asyncio.wait({waiting}, timeout=0.2)
    assert not waiting.done()
    await link.jetstream.purge_stream("WORK")
    assert not (await waiting).duplicate


async def test_a_repeated_conditional_message_is_refused_as_a_conflict_with_itself(link: NatsLink) -> None:
    """The server looks at the condition before the id: who lost an answer has to read whose message it is."""
    await a_stream(link)
    headers = {"Nats-Expected-Last-Subject-Sequence": "0"}
    await link.publish("work.a", b"", msg_id="one", headers=headers)
    with pytest.raises(Refused) as caught:
        await link.publish("work.a", b"", msg_id="one", headers=headers)
    assert caught.value.code == 10071


@pytest.mark.parametrize("headers", [{"bad name": "x"}, {"Name": "\ud800"}])
async def test_headers_that_cannot_be_sent_are_refused(link: NatsLink, headers: dict[str, str]) -> None:
    await a_stream(link)
    with pytest.raises(Refused):
        await link.publish("work.a", b"", msg_id="one", headers=headers)
    with pytest.raises(Refused):
        await link.tell("work.a", b"", msg_id="one", headers=headers)


async def test_a_message_of_the_largest_size_is_stored_and_a_larger_one_does_not_harm_the_link(link: NatsLink) -> None:
    await a_stream(link, max_bytes=1 << 24)
    headers = {"Run": "r1"}
    overhead = len(b"NATS/1.0\r\nRun: r1\r\nNats-Msg-Id: one\r\n\r\n")
    room = link.max_payload - overhead
    await link.publish("work.a", b"x" * room, msg_id="one", headers=headers)
    with pytest.raises(Refused):
        await link.publish("work.a", b"x" * (room + 1), msg_id="two", headers=headers)
    assert link.connected
    assert await stored(link) == 1


async def test_publishing_survives_a_killed_server_and_stores_every_message_once(
    nats_server: EmbeddedNats, link: NatsLink
) -> None:
    await a_stream(link)
    results = [link.publish("work.a", b"x", msg_id=str(number), headers={}) for number in range(200)]
    publishing = asyncio.gather(*results)
    nats_server.kill()
    await until(lambda: not link.connected)
    await nats_server.start()
    await publishing
    assert await stored(link) == 200


async def test_what_could_not_be_published_in_time_is_not_sent_later(nats_server: EmbeddedNats, link: NatsLink) -> None:
    await a_stream(link)
    nats_server.kill()
    await until(lambda: not link.connected)
    with pytest.raises(TryAgain, match="not connected"):
        await link.publish("work.a", b"x", msg_id="one", headers={}, within_s=0.2)
    await nats_server.start()
    await until(lambda: link.connected)
    await link.publish("work.a", b"y", msg_id="two", headers={})
    assert await stored(link) == 1


async def test_a_link_that_the_server_closed_for_good_says_so(link: NatsLink) -> None:
    lost = asyncio.create_task(link.until_lost())
    await link.send("a" * 5000, b"")  # beyond what publish and tell let through
    with pytest.raises(Unreachable, match="for good"):
        await asyncio.wait_for(lost, 5.0)
    with pytest.raises(Unreachable):
        await link.publish("work.a", b"", msg_id="one", headers={})


async def test_a_server_that_does_not_answer_is_named_without_its_password(unused_port: int) -> None:
    settings = NatsSettings(urls=(f"nats://someone:s3cret-s3cret@127.0.0.1:{unused_port}",))
    with pytest.raises(Unreachable) as caught:
        await connect(settings, timeout_s=0.5)
    assert f"nats://127.0.0.1:{unused_port}" in str(caught.value)
    assert "s3cret-s3cret" not in str(caught.value)


def test_a_section_hides_the_logins_in_its_addresses_and_names_them_to_the_log() -> None:
    section = NatsSettings(urls=("nats://me:pass%2Fword@host:4222", "nats://a-long-token@other", "third:4222"))
    assert section.secrets() == ("pass%2Fword", "pass/word", "a-long-token")
    assert section.servers == "nats://host:4222, nats://other, nats://third:4222"
    assert "pass%2F" not in repr(section)


@pytest.mark.parametrize(
    "urls", [(), ("http://host",), ("nats://",), ("nats://host:99999",), ("n://me:pass/word@host",)]
)
def test_what_no_server_can_be_reached_by_is_refused_without_showing_a_login(urls: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match=r"no address of a NATS server|name at least one server") as caught:
        NatsSettings(urls=urls)
    assert "pass" not in caught.value.errors(include_input=False)[0]["msg"]


@pytest.mark.parametrize("url", ["nats://me:@host:4222", "nats://@host", "nats://me:short@host", "token@host"])
def test_an_address_with_an_empty_or_short_login_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValidationError, match=r"address of (nats://)?host.* is (empty|too short)") as caught:
        NatsSettings(urls=(url,))
    told = caught.value.errors(include_input=False)[0]["msg"]
    assert not any(login in told for login in ("short@", "token@", "me:"))


async def test_a_wrong_password_is_told_at_once(tmp_path: Path, unused_port: int) -> None:
    users = {"users": [{"user": "agent", "password": RIGHT}]}
    async with server_with(tmp_path, unused_port, {"authorization": users}) as address:
        await (await connect(NatsSettings(urls=(address,), user="agent", password=RIGHT))).close()
        begin = time.monotonic()
        with pytest.raises(Misconfigured, match="login is refused"):
            await connect(NatsSettings(urls=(address,), user="agent", password=WRONG))
        assert time.monotonic() - begin < 3.0


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*request.split(), *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return key, certificate


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
async def test_a_server_is_trusted_by_its_certificate_alone(tmp_path: Path, unused_port: int) -> None:
    key, certificate = make_certificate(tmp_path)
    tls = {"cert_file": str(certificate), "key_file": str(key), "handshake_first": True}
    async with server_with(tmp_path, unused_port, {"tls": tls}) as address:
        link = await connect(NatsSettings(urls=(address,), tls_ca=certificate, tls_first=True))
        assert link.connected
        await link.close()
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await connect(NatsSettings(urls=(address,), tls_first=True), timeout_s=1.0)


async def test_a_denied_subject_is_told_at_once_and_harms_no_other(tmp_path: Path, unused_port: int) -> None:
    allowed = {"publish": ["work.*", "$JS.API.>"], "subscribe": ["_INBOX.>"]}
    users = {"users": [{"user": "agent", "password": RIGHT, "permissions": allowed}]}
    config = {"authorization": users, "jetstream": {"store_dir": str(tmp_path / "store")}}
    async with server_with(tmp_path, unused_port, config) as address:
        link = await connect(NatsSettings(urls=(address,), user="agent", password=RIGHT))
        await a_stream(link, subjects=["work.*", "Secret.>"])
        begin = time.monotonic()
        with pytest.raises(Misconfigured, match=r'publish to "secret\.plan"'):
            await link.publish("Secret.Plan", b"", msg_id="one", headers={})
        assert time.monotonic() - begin < 1.0
        await link.publish("work.a", b"", msg_id="two", headers={})
        await link.close()


async def test_a_message_whose_id_somebody_else_has_taken_goes_out_under_the_next_one(link: NatsLink) -> None:
    await a_stream(link)
    taken: list[None] = []
    link.id_was_taken = lambda: taken.append(None)
    await link.publish("work.theirs", b"theirs", msg_id="one", headers={})
    await link.publish("work.ours", b"theirs", msg_id="one", headers={})
    ours = await link.publish("work.ours", b"ours", msg_id="one", headers={})
    message = await link.jetstream.get_msg("WORK", ours.seq)
    assert (message.subject, message.data) == ("work.ours", b"ours")
    assert message.headers is not None
    assert message.headers["Nats-Msg-Id"] == "one#3"
    assert len(taken) == 3
