"""Artifacts in the object store of a real server."""

import asyncio
import contextlib
import hashlib
from pathlib import Path

import pytest

from groundwork.nats.buckets import ArtifactBucket, StoredArtifact
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.publishing import BusRefused
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import object_bucket, set_up
from groundwork.service.errors import NameTaken, NoRoom
from tests.kit.bus import server_with


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
