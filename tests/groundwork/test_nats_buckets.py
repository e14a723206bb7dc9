"""Buckets of real servers: leases and members of a role, and artifacts."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from groundwork.nats.buckets import ArtifactBucket, StoredArtifact, replace_value
from groundwork.nats.lease import DELETED_TTL_S, Lease, LeaseLost, LeaseRecord, Owner, Role, read_lease
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.publishing import BusRefused
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import Topology, key_value_bucket, object_bucket, set_up
from groundwork.service.errors import Misconfigured, NameTaken, NoRoom, TryAgain
from groundwork.service.machine import this
from groundwork.service.serving import keep_serving, role_lease
from tests.kit.bus import a_consumer, a_stream, server_with
from tests.kit.consumer import Seen, consuming
from tests.kit.waiting import until

ROLE = Role(bucket="leases", key="agent", command="agentic serve")
TTL_S = 1.0
uptime = this().uptime


def _topology(replicas: int = 1) -> Topology:
    settings = {"storage": "file", "max_bytes": 1 << 20, "num_replicas": replicas}
    files = object_bucket("files", {"max_bytes": 1 << 20, "num_replicas": replicas})
    return key_value_bucket("leases", settings), files


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await set_up(link, _topology())
    return link


def owner(name: str, ttl_s: float = TTL_S) -> Owner:
    return Owner(holder=name, host="here", pid=1, store=f"/{name}", since="2026-11-22T10:00:00Z", ttl_s=ttl_s)


def lease(link: NatsLink, name: str, ttl_s: float = TTL_S) -> Lease:
    return Lease(link, ROLE, owner(name, ttl_s))


async def record(link: NatsLink) -> LeaseRecord:
    found = await read_lease(link, ROLE)
    assert found is not None
    return found


async def test_of_two_that_come_at_once_one_has_the_lease_and_the_other_is_told_who_and_what_to_do(
    bus: NatsLink,
) -> None:
    async def kept(name: str) -> Lease:
        """Renewed while the other waits."""
        wanted = lease(bus, name)
        await wanted.acquire()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wanted.keep_renewed(), 0.6)
        return wanted

    ends = await asyncio.gather(kept("one"), kept("two"), return_exceptions=True)
    (winner,) = [end for end in ends if isinstance(end, Lease)]
    (refusal,) = [end for end in ends if isinstance(end, Misconfigured)]
    assert (await record(bus)).owner.holder in str(refusal).replace("/", "")
    for told in ("process 1 on here", "since 2026-11-22T10:00:00Z", "serve --take-over"):
        assert told in str(refusal)
    await winner.ensure_held()


async def test_a_lease_that_is_not_renewed_is_the_newcomers_after_its_time_and_not_before(bus: NatsLink) -> None:
    dead = lease(bus, "one", ttl_s=0.6)
    await dead.acquire()
    began = uptime()
    before = await lease(bus, "two").acquire()
    assert uptime() - began > 0.5
    assert (before.owner.holder if before else "", (await record(bus)).owner.epoch) == ("one", 2)
    with pytest.raises(LeaseLost, match="process 1 on here with the store /two"):
        await dead.ensure_held()


@pytest.mark.parametrize(
    ("role", "remedy"), [(ROLE, "serve --take-over"), (ROLE.member("one"), "delete store.id in the copy")]
)
async def test_a_copied_store_takes_no_lease_from_the_original_which_has_its_own_at_once(
    bus: NatsLink, role: Role, remedy: str
) -> None:
    await Lease(bus, role, owner("one", ttl_s=60)).acquire()
    started_again = Lease(bus, role, owner("one"))
    await started_again.acquire()
    renewing = asyncio.create_task(started_again.keep_renewed())
    with pytest.raises(Misconfigured, match=remedy):
        await Lease(bus, role, owner("one").model_copy(update={"store": "/copy"})).acquire()
    renewing.cancel()
    await started_again.ensure_held()


@dataclass
class Sleeper:
    """An owner whose machine can sleep: so much time has passed then that it was not there."""

    link: NatsLink
    slept: float = 0.0
    lease: Lease = field(init=False)

    async def begin(self, ttl_s: float = 60) -> None:
        self.lease = Lease(self.link, ROLE, owner("one", ttl_s), clock=lambda: uptime() + self.slept)
        await self.lease.acquire()
        self.link.guard = self.lease.ensure_held

    async def is_taken_over(self) -> None:
        await lease(self.link, "two").acquire(take_over=True)
        self.slept = 60


async def _publishes(link: NatsLink) -> None:
    await link.publish("work.a", b"", msg_id="a", headers={})


async def _stores(link: NatsLink) -> None:
    await ArtifactBucket(link, "files").put("run/a.txt", b"late", "text/plain")


@pytest.mark.parametrize("act", [_publishes, _stores])
async def test_an_owner_that_slept_does_nothing_once_another_has_the_lease(
    bus: NatsLink, act: Callable[[NatsLink], Awaitable[None]]
) -> None:
    await a_stream(bus)
    sleeper = Sleeper(bus)
    await sleeper.begin()
    await sleeper.is_taken_over()
    with pytest.raises(LeaseLost):
        await act(bus)
    assert not await bus.send("work.b", b"")
    assert (await bus.client.jetstream().stream_info("WORK")).state.messages == 0
    assert await ArtifactBucket(bus, "files").list() == []


async def test_an_owner_that_slept_and_had_no_successor_goes_on_and_keeps_its_epoch(bus: NatsLink) -> None:
    await a_stream(bus)
    sleeper = Sleeper(bus)
    await sleeper.begin(ttl_s=0.5)
    sleeper.slept = 60
    await _publishes(bus)
    assert (sleeper.lease.epoch, (await record(bus)).owner.epoch) == (1, 1)


async def test_a_message_in_the_hands_of_a_fenced_process_is_not_acknowledged_by_it(bus: NatsLink) -> None:
    await a_stream(bus)
    await a_consumer(bus)
    sleeper, seen = Sleeper(bus), Seen()
    seen.gate.clear()
    await sleeper.begin()
    await _publishes(bus)
    async with consuming(bus, seen, slots=1) as loop:
        await until(lambda: seen.deliveries)
        await sleeper.is_taken_over()
        seen.gate.set()
        await until(lambda: loop.in_hand == 0)
    await bus.client.jetstream().account_info()  # whatever was sent before has arrived by now
    assert (await bus.client.jetstream().consumer_info("WORK", "workers")).num_ack_pending == 1


async def test_a_bus_that_lost_its_newest_records_does_not_cost_the_owner_its_lease(bus: NatsLink) -> None:
    await lease(bus, "nobody").acquire()
    old = (await record(bus)).owner
    slept = 0.0
    kept = Lease(bus, ROLE, owner("two", 60), clock=lambda: uptime() + slept)
    await kept.acquire(take_over=True)
    lost = {"holder": "nobody", "host": "here", "pid": 1, "store": "/nobody", "since": "", "ttl_s": 1, "epoch": 1}
    lost |= {"newer": "field"}
    await replace_value(bus, ROLE.bucket, ROLE.key, json.dumps(lost).encode(), after=(await record(bus)).seq)
    slept = 60
    await kept.ensure_held()
    assert ((await record(bus)).owner.holder, old.epoch) == ("two", 1)


async def test_a_record_that_keeps_changing_is_left_for_later(bus: NatsLink, monkeypatch: pytest.MonkeyPatch) -> None:
    await (sleeper := Sleeper(bus)).begin()
    sleeper.slept = 60
    monkeypatch.setattr("groundwork.nats.lease.replace_value", AsyncMock(return_value=None))
    async with asyncio.timeout(5):
        with pytest.raises(TryAgain, match="it keeps changing"):
            await sleeper.lease.ensure_held()


async def test_a_record_that_was_deleted_is_renewed_by_its_owner_if_that_lives_and_free_after_a_while(
    bus: NatsLink,
) -> None:
    sleeper = Sleeper(bus)
    await sleeper.begin()
    kv = await bus.client.jetstream().key_value(ROLE.bucket)
    await kv.delete(ROLE.key)
    assert not (await record(bus)).free
    sleeper.slept = 60
    await sleeper.lease.ensure_held()
    assert (await record(bus)).owner.holder == "one"
    await kv.delete(ROLE.key)
    deleted = await record(bus)
    waited = replace(deleted, age_s=DELETED_TTL_S)
    assert (waited.free, *(lease(bus, "two", ttl_s).may_follow(waited) for ttl_s in (1, 3600))) == (True, True, False)
    await lease(bus, "two").acquire(take_over=True)
    sleeper.slept = 120
    with pytest.raises(LeaseLost, match="the store /two"):
        await sleeper.lease.ensure_held()


async def test_the_whole_role_is_refused_to_one_while_others_share_it_and_the_other_way_round(bus: NatsLink) -> None:
    for shared, why in ((True, "whose store is shared"), (False, "that shares nothing")):
        async with role_lease(bus, ROLE, owner("a"), shared=shared):
            with pytest.raises(BaseExceptionGroup) as refused:
                async with role_lease(bus, ROLE, owner("b"), shared=not shared):
                    pytest.fail("another has the role in the other way")
            assert (found := refused.value.subgroup(Misconfigured)) is not None
            assert why in str(found.exceptions[0])


async def test_a_member_whose_record_is_taken_from_it_ends_and_joins_anew(bus: NatsLink) -> None:
    joined: list[int] = []

    async def stay() -> None:
        async with role_lease(bus, ROLE, owner("a"), shared=True) as (ours, _):
            joined.append(ours.epoch)
            await asyncio.Event().wait()

    staying = asyncio.create_task(keep_serving(stay, who="member", shared=True))
    await until(lambda: joined == [1])
    await Lease(bus, ROLE.member("a"), owner("b")).acquire(take_over=True)
    await until(lambda: joined == [1, 3])
    staying.cancel()


@pytest.fixture
async def bucket(link: NatsLink) -> ArtifactBucket:
    await set_up(link, (object_bucket("files", {"max_bytes": 1 << 26, "compression": "none"}),))
    return ArtifactBucket(link, "files")


async def messages(link: NatsLink) -> int:
    return (await link.client.jetstream().stream_info("OBJ_files")).state.messages


@pytest.mark.parametrize("size", [0, 1, 128 * 1024, 3_000_000])
async def test_every_size_comes_back_as_it_was(bucket: ArtifactBucket, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    await bucket.put("data", data, "application/octet-stream")
    assert await bucket.get("data") == data


async def test_other_content_replaces_the_former_and_leaves_nothing_of_it(
    link: NatsLink, bucket: ArtifactBucket
) -> None:
    await bucket.put("a", b"old" * 100_000, "text/plain")
    for again in (b"old" * 100_000, b"new"):
        with contextlib.suppress(NameTaken):
            await bucket.put("a", again, "text/plain", over=False)
        assert await bucket.get("a") == b"old" * 100_000
    await bucket.put("a", b"new", "text/plain")
    assert await bucket.get("a") == b"new"
    assert await messages(link) == 2  # one piece and its description


async def test_a_full_bucket_says_so_at_once_with_what_to_do_and_what_it_has_stays(link: NatsLink) -> None:
    await set_up(link, (object_bucket("small", {"max_bytes": 1 << 17}),))
    bucket = ArtifactBucket(link, "small")
    await bucket.put("a", b"x" * 1000, "text/plain")
    async with asyncio.timeout(5):
        with pytest.raises(NoRoom, match=r"stream OBJ_small.*Make room"):
            await bucket.put("b", b"y" * (1 << 18), "text/plain")
    assert await bucket.get("a") == b"x" * 1000


@pytest.mark.parametrize("size", [1, 400_000])
async def test_an_artifact_whose_removal_was_cut_off_is_absent_and_can_be_stored_again(
    link: NatsLink, bucket: ArtifactBucket, size: int
) -> None:
    await bucket.put("a", b"x" * size, "text/plain")
    await link.ask_jetstream("STREAM.PURGE.OBJ_files", {"filter": "$O.files.C.>"})
    async with asyncio.timeout(25):
        assert await bucket.get("a") is None
        await bucket.put("a", b"x" * size, "text/plain")
        assert await bucket.get("a") == b"x" * size
    await bucket.remove("a")
    assert await messages(link) == 0


async def test_the_list_is_in_order_and_without_what_was_removed_also_where_acknowledgements_name_an_account(
    tmp_path: Path, unused_port: int
) -> None:
    """nats-py's own list stops the reading of the connection there (NATS ADR-15)."""
    config = {"jetstream": {"store_dir": str(tmp_path)}, "feature_flags": {"js_ack_fc_v2": True}}
    async with (
        server_with(tmp_path, unused_port, config) as address,
        connect(NatsSettings(urls=(address,)), "files") as link,
    ):
        await set_up(link, (object_bucket("files", {"max_bytes": 1 << 26}),))
        bucket = ArtifactBucket(link, "files")
        for key in ("run_2/b", "run_2/a", "run_1/a"):
            await bucket.put(key, key.encode(), "text/plain")
        await bucket.remove("run_2/a")
        listed = await bucket.list()
        assert (await bucket.get("run_2/a"), [one.key for one in listed]) == (None, ["run_1/a", "run_2/b"])
        assert listed[0] == StoredArtifact("run_1/a", 7, hashlib.sha256(b"run_1/a").hexdigest())


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a/.b", "a b", "é", "a\n", "a\x00", "a\\b", "a" * 201]
)
async def test_a_key_that_is_no_path_of_plain_names_is_refused(bucket: ArtifactBucket, key: str) -> None:
    with pytest.raises(BusRefused):
        await bucket.put(key, b"", "text/plain")
