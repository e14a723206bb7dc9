"""The accounts of deploy/nats/ deny each role the operations of others, and report it."""

import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import nkeys  # type: ignore[import-untyped]  # it has no annotations
import pytest
from nats.aio.client import Client

from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Misconfigured
from schemas import subjects
from tests.accounts.house import EXECUTOR, House, served
from tests.kit.bus import heard
from tests.kit.waiting import until

REQUEST = subjects.tool_request("mail")
API = "$JS.API"


def of_stream(*deeds: str, stream: str = subjects.STREAM) -> list[str]:
    return [f"{API}.STREAM.{deed}.{stream}" for deed in deeds]


def lease(name: str) -> str:
    return f"$KV.{subjects.LEASE_BUCKET}.{name}"


def agents(*endpoints: str) -> list[str]:
    return [f"agentic-loop.{endpoint}" for endpoint in endpoints]


REQUESTS = subjects.STREAM_REQUESTS
SAYS = {
    "publisher": (
        *(subjects.TOOL_RESULT, subjects.CANCEL, subjects.SIGNAL, REQUEST, subjects.COMPLETED, subjects.ESCALATED),
        *(subjects.REJECTED, subjects.CATALOG, subjects.CALLBACK, lease("halt"), lease(subjects.LEASE_AGENT)),
        *agents("cancel", "approve", "answer", "callback", "stop-all", "go-on"),
        *of_stream("DELETE", "PURGE", "MSG.GET"),
        f"{API}.DIRECT.GET.{subjects.STREAM}",
        f"{API}.CONSUMER.CREATE.{subjects.STREAM}.mine",
        f"$O.{subjects.ARTIFACT_BUCKET}.C.x",
        "_INBOX.agent.x",
    ),
    EXECUTOR: (
        *(subjects.START, subjects.CANCEL, subjects.SIGNAL, REQUEST, subjects.COMPLETED, subjects.REJECTED),
        *(subjects.DEAD_LETTERS_TOOLS, *agents("wake"), lease(subjects.LEASE_GATEWAY), f"{API}.STREAM.NAMES"),
        *of_stream("MSG.GET", stream=REQUESTS),
        f"{API}.DIRECT.GET.{REQUESTS}",
        f"{API}.CONSUMER.CREATE.{REQUESTS}.mine.{REQUEST}",
        f"{API}.CONSUMER.MSG.NEXT.{REQUESTS}.{subjects.DURABLE_TOOLS}",
        *(f"{API}.CONSUMER.{deed}.{REQUESTS}.{EXECUTOR}" for deed in ("DELETE", "MSG.NEXT", "INFO")),
        f"$JS.ACK.{REQUESTS}.{subjects.DURABLE_TOOLS}.1.1.1.1.1",
    ),
    "gateway": (
        *(subjects.CANCEL, subjects.SIGNAL, REQUEST, subjects.COMPLETED, subjects.WAITING, *agents("approve")),
        *(lease(subjects.LEASE_AGENT), *of_stream("DELETE"), f"{API}.CONSUMER.CREATE.{subjects.STREAM}.mine"),
    ),
    "agent": (
        *(lease(subjects.LEASE_GATEWAY), subjects.DEAD_LETTERS_TOOLS, "$SYS.REQ.SERVER.PING"),
        *of_stream("DELETE", "PURGE", "UPDATE"),
    ),
    "approver": (subjects.START, subjects.SIGNAL, subjects.TOOL_RESULT, *agents("wake", "cancel")),
    "operator": (
        *(subjects.COMPLETED, lease(subjects.LEASE_AGENT), f"{API}.STREAM.CREATE.MINE"),
        *(*of_stream("DELETE", "UPDATE"), *of_stream("PURGE", stream=subjects.STREAM_DEAD_LETTERS)),
    ),
    "observer": (
        *(subjects.START, subjects.CANCEL, subjects.TOOL_RESULT, f"{API}.CONSUMER.CREATE.{subjects.STREAM}.mine"),
    ),
    "setup": (
        *(subjects.SIGNAL, subjects.CANCEL, f"{API}.STREAM.CREATE.MINE"),
        *of_stream("DELETE", "PURGE", "MSG.DELETE"),
    ),
}
HEARS = {
    "publisher": ("agent.>", subjects.START, subjects.ALL_TOOL_REQUESTS, "log.>", "_INBOX.>", "_INBOX.agent.>", ">"),
    EXECUTOR: (subjects.ALL_TOOL_REQUESTS, subjects.TOOL_RESULT, subjects.START, "agent.>", "log.>", "_INBOX.>"),
    "gateway": (subjects.ALL_TOOL_REQUESTS, "agentic-loop.wake", "_INBOX.agent.>", "log.>"),
    "agent": (subjects.CATALOG, "_INBOX.gateway.>", "$SYS.>"),
    "approver": (subjects.COMPLETED, "agentic.>", "log.>"),
    "observer": (subjects.START, subjects.ALL_TOOL_REQUESTS, subjects.TOOL_RESULT, "_INBOX.>", "log.>"),
    "operator": ("_INBOX.>", "agentic-loop.wake", "$SYS.>"),
    "setup": ("agent.>", "agentic.>"),
}


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with served(tmp_path_factory.mktemp("denied") / "nats") as made:
        assert made.set_up().code == 0
        yield made


async def test_nobody_says_what_is_not_his_to_say(bus: House) -> None:
    assert [one async for one in allowed(bus, SAYS, lambda link, subject: link.send(subject, b"{}"))] == []


async def test_nobody_hears_what_is_not_his_to_hear(bus: House) -> None:
    assert [one async for one in allowed(bus, HEARS, heard)] == []


async def allowed(
    bus: House, table: Mapping[str, Sequence[str]], tries: Callable[[NatsLink, str], Awaitable[object]]
) -> AsyncIterator[str]:
    """Operations that a login may perform and should not."""
    for login, subjects_ in table.items():
        async with bus.login(login) as link:
            for subject in subjects_:
                await tries(link, subject)
                await link.client.flush()
                with contextlib.suppress(AssertionError):
                    await until(lambda link=link, subject=subject: denied(link, subject), within_s=5)  # type: ignore[misc]
                    continue
                yield f"{login}: {subject}"


async def test_an_executor_has_its_requests_sent_to_no_subject_of_its_choice(bus: House) -> None:
    """Neither by a pull, nor by an acknowledgement that asks for the next one."""
    async with bus.login("agent") as agent, bus.login("operator") as operator, an_executor(bus) as executor:
        elsewhere = await heard(operator, subjects.CANCEL)
        given = await executor.subscribe(subjects.requests_of(EXECUTOR), queue=EXECUTOR)
        for number in ("first", "second"):
            await agent.publish(subjects.tool_request("weekday"), number.encode(), msg_id=number, headers={})
        first = await given.next_msg(timeout=10)
        pull = f"{API}.CONSUMER.MSG.NEXT.{subjects.STREAM_REQUESTS}.{EXECUTOR}"
        for asked, body in ((pull, b""), (first.reply, b"+NXT")):
            await executor.publish(asked, body, reply=subjects.CANCEL)
        second = await given.next_msg(timeout=10)
        assert (first.data, second.data) == (b"first", b"second")
        await second.ack()
        await operator.client.flush()
    assert b"second" not in [message.data for message in elsewhere]


@asynccontextmanager
async def an_executor(bus: House) -> AsyncIterator[Client]:
    """Uses plain nats-py."""
    login = bus.section(EXECUTOR)
    tls = ssl.create_default_context(cafile=login["tls_ca"])
    prefix, seed = login["inbox_prefix"], login["nkey_seed_file"]
    client = await nats.connect(login["urls"], tls=tls, nkeys_seed=seed, inbox_prefix=prefix)
    try:
        yield client
    finally:
        await client.close()


def denied(link: NatsLink, subject: str) -> bool:
    return subject.lower() in (told for _, told in link.client.denials)


async def test_on_a_bus_without_accounts_nothing_of_that_is_denied(link: NatsLink) -> None:
    for subject in (subject for said in SAYS.values() for subject in said if not subject.startswith("$SYS")):
        await link.send(subject, b"{}")
    await link.client.flush()
    assert not link.denied


async def test_nobody_gets_in_without_a_key_or_with_one_of_his_own(bus: House, tmp_path: Path) -> None:
    seed = tmp_path / "own.nk"
    seed.write_bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    for key in (None, seed):
        with pytest.raises(Misconfigured, match="login is refused"):
            await connect(NatsSettings(**(bus.section("observer") | {"nkey_seed_file": key}))).__aenter__()
