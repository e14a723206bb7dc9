"""The connection to a real server that fills up, denies subjects, goes away and comes back."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import ValidationError

from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats.client import HARMLESS_DENIAL, Unanswered
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.publishing import BusRefused, read_ack
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Misconfigured, NoRoom, TryAgain, Unreachable
from tests.kit.bus import a_stream, make_certificate, needs_openssl, server_with
from tests.kit.waiting import until

RIGHT, WRONG = "right-word", "wr0ng-word"
AT_ONCE_S = 3.0
NO_ADDRESSES = ("ws://host", "http://host", "nats://", "nats://host:99999", "n://me:sh0rt@host")
NO_LOGINS = ("nats://me:@host:4222", "nats://@host", "nats://me:sh0rt@host:4222", "sh0rt@host")
OVERHEAD = len(b"NATS/1.0\r\nRun: r1\r\nNats-Msg-Id: one\r\n\r\n")


async def stored(link: NatsLink) -> int:
    return (await link.client.jetstream().stream_info("WORK")).state.messages


async def test_a_stream_that_gets_room_in_time_stores_the_waiting_message(link: NatsLink) -> None:
    await a_stream(link, max_bytes=1000)
    await link.publish("work.a", b"x" * 700, msg_id="one", headers={})
    waiting = asyncio.create_task(link.publish("work.a", b"x" * 700, msg_id="two", headers={}))
    await asyncio.wait({waiting}, timeout=0.2)
    assert not waiting.done()
    await link.client.jetstream().purge_stream("WORK")
    assert not (await waiting).duplicate


@pytest.mark.parametrize("headers", [{"bad name": "x"}, {"Name": "\ud800"}])
async def test_headers_that_cannot_be_sent_are_refused(
    link: NatsLink, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BusRefused):
        await link.publish("work.a", b"", msg_id="one", headers=headers)
    assert not await link.send("work.a", b"", headers=headers)
    assert "a message is left out: not a message for work.a" in caplog.text


async def test_a_message_of_the_largest_size_is_stored_and_a_larger_one_does_not_harm_the_link(link: NatsLink) -> None:
    await a_stream(link, max_bytes=1 << 24)
    room = link.max_payload - OVERHEAD
    await link.publish("work.a", b"x" * room, msg_id="one", headers={"Run": "r1"})
    with pytest.raises(BusRefused):
        await link.publish("work.a", b"x" * (room + 1), msg_id="two", headers={"Run": "r1"})
    assert (link.connected, await stored(link)) == (True, 1)


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


async def test_a_server_that_does_not_answer_is_told_at_once_and_how_to_start_one(
    unused_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with pytest.raises(Unreachable, match="start one with `agentic dev`"):
        await connect(NatsSettings(urls=(f"nats://127.0.0.1:{unused_port}",)), timeout_s=2.0).__aenter__()
    assert caplog.messages == ["NATS does not answer yet"]


async def test_a_link_that_the_server_closed_for_good_says_so(link: NatsLink) -> None:
    lost = asyncio.create_task(link.wait_closed())
    await link.client.publish("a" * 5000, b"")  # beyond what publish and send let through
    with pytest.raises(Unreachable):
        await asyncio.wait_for(lost, 5.0)
    with pytest.raises(Unreachable):
        await link.publish("work.a", b"", msg_id="one", headers={})


async def test_a_message_whose_id_somebody_else_has_taken_goes_out_under_the_next_one(
    link: NatsLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_stream(link)
    taken: list[None] = []
    monkeypatch.setattr(link.repeats.taken, "add", lambda: taken.append(None))
    await link.publish("work.theirs", b"theirs", msg_id="one", headers={})
    await link.publish("work.ours", b"theirs", msg_id="one", headers={})
    ours = await link.publish("work.ours", b"ours", msg_id="one", headers={})
    message = await link.client.jetstream().get_msg("WORK", ours.seq)
    assert (message.subject, message.data, (message.headers or {})["Nats-Msg-Id"]) == ("work.ours", b"ours", "one#3")
    assert len(taken) == 3
    await link.client.jetstream().delete_msg("WORK", ours.seq)
    assert not (await link.publish("work.ours", b"ours", msg_id="one", headers={})).duplicate, (
        "what is gone may be theirs"
    )


async def test_an_attempt_that_was_given_up_counts_as_unanswered_until_its_like_is_answered(
    link: NatsLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered(*_: object, **__: object) -> None:
        raise Unanswered("no answer in time")

    await a_stream(link)
    with monkeypatch.context() as patched:
        patched.setattr(link.client, "ask", unanswered)
        for times in (1, 2):
            await link.client.force_reconnect()
            await until(lambda times=times: link.reconnects == times and link.connected)  # type: ignore[misc]  # bound
            with pytest.raises(TryAgain):
                await link.publish("work.run.1", b"", msg_id="one", headers={}, within_s=0.0)
            assert link.unanswered_s > 0.0
    with monkeypatch.context() as patched:
        patched.setattr("groundwork.nats.link.RETRIED_WITHIN_S", 0.0)
        assert link.unanswered_s == 0.0, "an attempt that nothing repeats, such as a notice, would count for ever"
    assert link.unanswered_s > 0.0
    await link.publish("work.run.2", b"", msg_id="two", headers={})
    assert link.unanswered_s == 0.0


def test_a_section_hides_the_logins_in_its_addresses_and_names_them_to_the_log() -> None:
    section = NatsSettings(urls=("nats://me:pass%2Fword@host:4222", "nats://a-long-token@other", "third:4222"))
    assert section.secrets() == ("pass%2Fword", "pass/word", "a-long-token")
    assert section.servers == "nats://host:4222, nats://other, nats://third:4222"
    assert "pass%2F" not in repr(section)
    assert NatsSettings(urls=("TLS://host", "host")).urls == ("tls://host", "nats://host")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"urls": ()}, "at least one server"),
        *(({"urls": (url,)}, "not an address of a NATS server") for url in NO_ADDRESSES),
        *(({"urls": (url,)}, "password or token in the address") for url in NO_LOGINS),
        ({"user": "me", "password": RIGHT, "token": RIGHT}, "user and password and token are several logins"),
        ({"nkey_seed_file": "a.nk", "creds_file": "a.creds"}, "creds_file and nkey_seed_file are several logins"),
        ({"tls_key": "key.pem"}, "set tls_cert"),
        ({"inbox_prefix": "_INBOX."}, "_INBOX.NAME"),
        ({"inbox_prefix": "_INBOX..a"}, "_INBOX.NAME"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name_and_no_login_is_shown(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationError, match=told) as caught:
        NatsSettings(**given)
    shown = str(caught.value.errors(include_input=False)[0]["msg"])
    assert not any(login in shown for login in ("sh0rt", "me:", RIGHT))


async def test_a_key_that_is_none_is_told_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "agent.nk").write_text(WRONG)
    with pytest.raises(Misconfigured, match=r"login .* cannot be used \(ErrInvalidSeed\)"):
        await connect(NatsSettings(nkey_seed_file=tmp_path / "agent.nk")).__aenter__()


@needs_openssl
async def test_a_server_is_trusted_by_its_certificate_alone(tmp_path: Path, unused_port: int) -> None:
    key, certificate = make_certificate(tmp_path)
    tls = {"cert_file": str(certificate), "key_file": str(key), "handshake_first": True}
    async with server_with(tmp_path, unused_port, {"tls": tls}) as address:
        async with connect(NatsSettings(urls=(address,), tls_ca=certificate, tls_first=True)) as link:
            assert link.connected
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await connect(NatsSettings(urls=(address,), tls_first=True), timeout_s=1.0).__aenter__()


async def test_a_denied_subject_is_told_at_once_and_harms_no_other(tmp_path: Path, unused_port: int) -> None:
    said = {"allow": ["work.*", "$JS.API.>"], "deny": ["$JS.API.STREAM.MSG.GET.>"]}
    allowed = {"publish": said, "subscribe": ["_INBOX.>"]}
    users = {"users": [{"user": "agent", "password": RIGHT, "permissions": allowed}]}
    config = {"authorization": users, "jetstream": {"store_dir": str(tmp_path / "store")}}
    async with (
        server_with(tmp_path, unused_port, config) as address,
        connect(NatsSettings(urls=(address,), user="agent", password=RIGHT)) as link,
    ):
        await a_stream(link, subjects=["work.*", "Secret.>"])
        begin = time.monotonic()
        with pytest.raises(Misconfigured, match=r"secret\.plan"):
            await link.publish("Secret.Plan", b"", msg_id="one", headers={})
        assert time.monotonic() - begin < AT_ONCE_S
        told = [await link.publish("work.a", b"", msg_id="two", headers={}) for _ in range(2)]
        assert [one.duplicate for one in told] == [False, True], "a login that may not read trusts the id"


@pytest.mark.parametrize(
    ("subject", "matters"),
    [
        ("agent.completed", True),
        ("$KV.leases.agent", True),
        ("$JS.API.CONSUMER.MSG.NEXT.AGENTIC.loop", True),
        ("$JS.API.STREAM.INFO.AGENTIC", False),
        ("_INBOX.of.somebody", False),
    ],
)
def test_what_is_denied_matters_where_more_than_a_look_or_an_answer_is(subject: str, *, matters: bool) -> None:
    assert bool(HARMLESS_DENIAL.match(subject.lower())) is not matters


NO_SUBJECTS = ("", ".", "a.", ".a", "a..b", "a.*", "a.>", ">", "a*", "a b", "a\tb", "a\r\nPUB b 0", "é", "a\x00")
SUBJECTS = ("agentic.tool_request.jina-reader", "a", "a" * 255, "$JS.ACK.S.c.1.2.3.4.5", "a.b~c.d=e")


async def test_a_subject_that_the_server_would_not_take_is_refused_here(link: NatsLink) -> None:
    for subject in SUBJECTS:
        await link.client.put(subject, b"")
    for subject in (*NO_SUBJECTS, "a" * 256, "a\n"):
        with pytest.raises(BusRefused):
            await link.client.put(subject, b"")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((503, 10077), NoRoom),  # maximum bytes exceeded
        ((503, 10023), NoRoom),  # insufficient resources
        ((409, 10158), TryAgain),  # duplicate message id is in process
        ((503, 10008), TryAgain),  # temporarily unavailable
        ((400, 10071), BusRefused),  # wrong last sequence
        ((400, 10054), BusRefused),  # message size exceeds maximum
        ("words", BusRefused),
        ({"unknown": 1}, BusRefused),
        ({"error": "words"}, BusRefused),
        ({"error": {"code": None}}, BusRefused),
    ],
)
def test_an_error_says_whether_trying_again_can_help(answer: Any, kind: type[Exception]) -> None:
    if isinstance(answer, tuple):
        answer = {"error": {"code": answer[0], "err_code": answer[1], "description": "as it is"}}
    with pytest.raises(kind) as caught:
        read_ack(Msg(Client(), "_INBOX.1", "", json.dumps(answer).encode(), None), "a.b")
    assert caught.type is kind
