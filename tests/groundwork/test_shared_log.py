"""A shared log and its replicas, on one server and on three."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats import shared_log
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import WRONG_SEQUENCE, BusRefused, StoredMessage
from groundwork.nats.shared_log import AppendConflict, SharedLog
from groundwork.nats.topology import Spec, StreamSight, Topology, set_up
from groundwork.service.errors import Misconfigured, TryAgain, patiently
from groundwork.sqlite.file import SqliteFile, open_file
from groundwork.sqlite.replica import Replica

STREAM = "FACTS"
LARGE = bytes(range(256)) * 10_000


@pytest.fixture(params=[1, 3])
async def bus(request: pytest.FixtureRequest, link: NatsLink, cluster_link: NatsLink) -> NatsLink:
    """A link to a server, or to a cluster of three, with an empty log."""
    link = link if request.param == 1 else cluster_link
    await set_up(link, _topology(request.param))
    return link


@pytest.fixture
def log(bus: NatsLink) -> SharedLog:
    return SharedLog(bus, STREAM, root="facts")


def _topology(replicas: int) -> Topology:
    settings = {"subjects": ["facts.>"], "num_replicas": replicas, "storage": "file", "deny_delete": True}
    return (Spec(STREAM, {**settings, "discard": "new", "allow_direct": True}),)


async def test_a_fact_larger_than_a_message_comes_whole(log: SharedLog, tmp_path: Path) -> None:
    seq = await log.append("facts.large", LARGE, after=0)
    newest = await log.newest("facts.large")
    assert newest
    assert newest.body == LARGE
    async with _copied(log, tmp_path) as copy:
        await copy.wait(seq)
        assert copy.bodies() == {"facts.large": LARGE}


async def test_a_large_fact_is_gone_with_its_parts_and_one_that_lost_is_none(log: SharedLog, tmp_path: Path) -> None:
    await log.append("facts.large", LARGE, after=0)
    await log.purge("facts.large")
    assert (await log.newest("facts.large"), await log.end()) == (None, 0)
    seq = await log.append("facts.large", b"won", after=0)
    with pytest.raises(AppendConflict):
        await log.append("facts.large", LARGE, after=0)
    async with _copied(log, tmp_path) as copy:
        assert [fact.seq for fact in copy.told] == [seq]


async def test_a_stream_that_takes_nothing_is_a_matter_for_a_person(bus: NatsLink, log: SharedLog) -> None:
    info = await bus.client.jetstream().stream_info(STREAM)
    await bus.client.jetstream().update_stream(info.config.evolve(sealed=True))
    with pytest.raises(Misconfigured, match=f"{STREAM} refuses what belongs there: .*sealed"):
        await log.append("facts.a", b"", after=0)


async def test_a_copy_of_another_log_begins_anew(bus: NatsLink, log: SharedLog, tmp_path: Path) -> None:
    async with _copied(log, tmp_path) as copy:
        await copy.wait(await log.append("facts.old", b"", after=0))
    await bus.client.jetstream().delete_stream(STREAM)
    await set_up(bus, _topology(1))
    async with _copied(log, tmp_path) as copy:
        await copy.wait(await log.append("facts.new", b"", after=0))
        assert set(copy.bodies()) == {"facts.new"}


async def test_who_follows_a_log_that_is_set_back_notices_it_and_its_copy_begins_anew(
    nats_server: EmbeddedNats, link: NatsLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_log, "MISSED_HEARTBEATS", 0.05)
    await set_up(link, _topology(1))
    log = SharedLog(link, STREAM, root="facts")
    await log.append("facts.old", b"", after=0)
    await nats_server.stop()
    kept = shutil.copytree(tmp_path / "nats", tmp_path / "kept")
    await nats_server.start()
    with pytest.RaisesGroup(pytest.RaisesExc(TryAgain, match="restored to an earlier state")):
        async with _copied(log, tmp_path) as copy:
            await copy.wait(await patiently(lambda: log.append("facts.lost", b"", after=0)))
            await nats_server.stop()
            shutil.rmtree(tmp_path / "nats")
            kept.rename(tmp_path / "nats")
            await nats_server.start()
            await asyncio.sleep(60)
    async with _copied(log, tmp_path) as copy:
        assert set(copy.bodies()) == {"facts.old"}


@pytest.mark.parametrize("instead", [{}, {"headers": {"Nats-Last-Consumer": "x"}}, {"reply": "$JS.ACK.x"}])
async def test_a_fact_that_is_lost_on_its_way_comes_though_no_other_or_what_no_server_sent_follows(
    instead: dict[str, Any], link: NatsLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(shared_log._ORDERED, "idle_heartbeat", 100_000_000)
    await set_up(link, _topology(1))
    log, subscribe, lost = SharedLog(link, STREAM, root="facts"), link.subscribe, list[Msg]()

    async def subscribe_and_lose(subject: str, callback: Callable[[Msg], Awaitable[None]]) -> Subscription:
        async def hear(message: Msg) -> None:
            if message.data == b"lost" and not lost:
                lost.append(message)
                message = Msg(link.client, subject, **instead)
            await callback(message)

        return await subscribe(subject, hear)

    monkeypatch.setattr(link, "subscribe", subscribe_and_lose)
    async with _copied(log, tmp_path) as copy:
        await copy.wait(await log.append("facts.a", b"lost", after=0))
    assert lost


class _Unanswered:
    """A link to a leader that stores a fact and dies of it: the next one has it already."""

    max_payload = 1 << 20

    async def store(self, _subject: str, _body: bytes, headers: dict[str, str]) -> NoReturn:
        self.headers = headers
        raise BusRefused("wrong last sequence", code=WRONG_SEQUENCE)

    async def newest(self, _stream: str, subject: str) -> StoredMessage:
        return StoredMessage(subject, b"1", self.headers, seq=7)


async def test_a_fact_that_a_dying_leader_stored_without_an_answer_is_known_again_by_the_next_one() -> None:
    link: Any = _Unanswered()
    assert await SharedLog(link, STREAM, root="facts").append("facts.a", b"1", after=0) == 7


class _Copy:
    """A replica that keeps the newest body of each subject."""

    def __init__(self, log: SharedLog, file: SqliteFile) -> None:
        self._file = file
        self.told: list[StoredMessage] = []
        self.replica = Replica(log, file, _apply, forget=lambda connection: connection.execute("DELETE FROM bodies"))
        self.replica.applied = self.told.extend
        self.wait = self.replica.wait

    def bodies(self) -> dict[str, bytes]:
        return dict(self._file.look_up("SELECT subject, body FROM bodies"))


@asynccontextmanager
async def _copied(log: SharedLog, folder: Path) -> AsyncIterator[_Copy]:
    (migrations := folder / "sql").mkdir(exist_ok=True)
    script = "CREATE TABLE replica (created, reached, at); CREATE TABLE bodies (subject PRIMARY KEY, body);"
    (migrations / "0001_all.sql").write_text(script)
    async with open_file(folder / "copy.db", migrations, durable=False) as file:
        copy = _Copy(log, file)
        async with copy.replica.following():
            yield copy


def _apply(connection: sqlite3.Connection, fact: StoredMessage) -> None:
    connection.execute("INSERT OR REPLACE INTO bodies VALUES (?, ?)", (fact.subject, fact.body))


def _seen(first_seq: int, last_seq: int, *, reconnects: int = 0, day: int = 21) -> StreamSight:
    return StreamSight(reconnects, f"2026-11-{day}", first_seq, last_seq)


@pytest.mark.parametrize(
    ("before", "now", "may_have_lost"),
    [
        pytest.param(_seen(1, 5), _seen(1, 5, reconnects=1), True, id="was away"),
        pytest.param(_seen(1, 5), _seen(1, 9, day=22), True, id="made anew"),
        pytest.param(_seen(1, 5), _seen(1, 4), True, id="lost its end"),
        pytest.param(_seen(1, 5), _seen(6, 5), True, id="emptied"),
        pytest.param(_seen(1, 5), _seen(9, 12), True, id="emptied and used"),
        pytest.param(_seen(0, 0), _seen(3, 2), True, id="emptied once used"),
        pytest.param(_seen(6, 5), _seen(8, 7), True, id="emptied again"),
        pytest.param(_seen(0, 0), _seen(1, 1), False, id="its first message"),
        pytest.param(_seen(1, 5), _seen(1, 9), False, id="more of them"),
        pytest.param(_seen(1, 5), _seen(4, 9), False, id="some grew old"),
        pytest.param(_seen(6, 5), _seen(6, 8), False, id="used after it was emptied"),
    ],
)
def test_a_bus_may_have_lost_when_its_stream_lacks_what_it_had(
    before: StreamSight, now: StreamSight, *, may_have_lost: bool
) -> None:
    assert now.may_have_lost(before) is may_have_lost
