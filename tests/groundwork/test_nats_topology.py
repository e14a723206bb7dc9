"""What should exist on the bus is created where missing, and what differs is told and never changed."""

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import RePublish

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import (
    BucketSpec,
    ConsumerSpec,
    Deviation,
    StreamSpec,
    Topology,
    check_topology,
    create_missing,
)
from tests.kit import nats_cli

DAY = 86400.0
ADVISORIES = (
    "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.WORK.>",
    "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.WORK.>",
)

WORK = StreamSpec(
    "WORK",
    {
        "subjects": ("work.start", "work.done", "work.request.*"),
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_age": 14 * DAY,
        "max_bytes": 1 << 26,
        "duplicate_window": DAY,
        "deny_delete": True,
        "allow_direct": True,
        "compression": "none",
        "num_replicas": 1,
    },
)
EVENTS = StreamSpec(
    "EVENTS",
    {"subjects": ("event.>",), "persist_mode": "async", "max_age": DAY, "max_bytes": 1 << 24, "discard": "old"},
)
DEAD = StreamSpec("DEAD", {"subjects": ("dlq.>", *ADVISORIES), "max_age": 30 * DAY, "max_bytes": 1 << 24})
WORKERS = ConsumerSpec(
    "WORK",
    "workers",
    {"filter_subjects": ("work.start", "work.done"), "ack_wait": 30.0, "max_ack_pending": 256, "max_deliver": 10},
)
ONE_TOOL = ConsumerSpec("WORK", "tool-x", {"filter_subject": "work.request.x", "ack_wait": 30.0})
FILES = BucketSpec("files", {"max_bytes": 1 << 24, "compression": "none", "max_age": 30 * DAY, "storage": "file"})

WHOLE = Topology(streams=(WORK, EVENTS, DEAD), consumers=(WORKERS, ONE_TOOL), buckets=(FILES,))
NAMES = [
    "stream WORK",
    "stream EVENTS",
    "stream DEAD",
    "stream OBJ_files",
    "consumer workers of stream WORK",
    "consumer tool-x of stream WORK",
]


def _with(stream: StreamSpec, more: Mapping[str, Any]) -> StreamSpec:
    return replace(stream, settings={**stream.settings, **more})


def kinds(findings: list[Deviation]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.what) for finding in findings]


async def test_all_that_is_missing_is_found_and_nothing_created_by_looking(link: NatsLink) -> None:
    for _ in range(2):
        findings = await check_topology(link, WHOLE)
        assert kinds(findings) == [("missing", name) for name in NAMES]
        assert all(finding.remedy for finding in findings)


async def test_all_is_created_from_nothing_and_the_second_time_nothing_is_found(link: NatsLink) -> None:
    assert kinds(await create_missing(link, WHOLE)) == [("created", name) for name in NAMES]
    assert await create_missing(link, WHOLE) == []
    assert await check_topology(link, WHOLE) == []


async def test_a_stream_that_differs_is_told_and_left_as_it_is(link: NatsLink) -> None:
    await create_missing(link, WHOLE)
    wished = replace(WORK, settings={**WORK.settings, "max_age": DAY, "deny_delete": False, "discard": "old"})
    findings = await create_missing(link, Topology(streams=(wished,)))
    assert [(one.kind, one.what, one.field, one.expected, one.actual) for one in findings] == [
        ("differs", "stream WORK", "discard", "old", "new"),
        ("differs", "stream WORK", "max_age", "86400.0", "1209600.0"),
        ("differs", "stream WORK", "deny_delete", "False", "True"),
    ]
    assert all("nats stream edit WORK" in finding.remedy for finding in findings)
    assert await check_topology(link, WHOLE) == []


@pytest.mark.natscli
@nats_cli.needs_nats_cli
async def test_the_commands_that_are_told_of_what_differs_mend_it(
    link: NatsLink, nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    stream = {
        "subjects": ["work.>", "$odd.>"],
        "discard": "old",
        "max_age": DAY,
        "max_bytes": 2 << 20,
        "duplicate_window": 90.0,
        "allow_direct": False,
        "description": "Somebody's work.",
        "compression": "none",
        "republish": RePublish(src="work.>", dest="log.work.>"),
    }
    consumer = {"ack_wait": 60.0, "max_ack_pending": 7, "filter_subjects": ["work.start", "work.end"]}
    wished = Topology(
        streams=(replace(WORK, settings={**WORK.settings, **stream}),),
        consumers=(replace(WORKERS, settings={**WORKERS.settings, **consumer}),),
    )
    set_otherwise = {"description": "Work.", "republish": RePublish(src="work.start", dest="copy")}
    await create_missing(link, replace(WHOLE, streams=(_with(WORK, set_otherwise), EVENTS, DEAD)))
    findings = await check_topology(link, wished)
    assert len(findings) == 11
    for_the_setup = [finding for finding in findings if "run the setup" in finding.remedy]
    for finding in (one for one in findings if one not in for_the_setup):
        command = shlex.split(finding.remedy.partition(", or: ")[2])
        await nats_cli.said(*command, "--force", environ=nats_cli.environment(tmp_path, nats_server.url))
    assert await check_topology(link, wished) == for_the_setup


async def test_of_two_setups_at_once_the_later_one_does_not_change_what_the_earlier_one_created(link: NatsLink) -> None:
    await create_missing(link, Topology(streams=(WORK,)))
    other = replace(WORKERS, settings={**WORKERS.settings, "ack_wait": 60.0})
    rivals = [Topology(consumers=(WORKERS,)), Topology(consumers=(other,))]
    results = await asyncio.gather(*(create_missing(link, one) for one in rivals), return_exceptions=True)
    created = [("created", "consumer workers of stream WORK")]
    (winner,) = (one for one, result in zip(rivals, results, strict=True) if _kinds_or_error(result) == created)
    assert await check_topology(link, winner) == []


def _kinds_or_error(result: list[Deviation] | BaseException) -> list[tuple[str, str]] | BaseException:
    return kinds(result) if isinstance(result, list) else result
