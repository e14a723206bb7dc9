"""Setup of streams and consumers: creates missing ones, adds missing entries, reports other differences."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from nats.js.api import RePublish

from agent_service.bus.topology import Executor, check, topology
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import Deviation, Spec, check_topology, object_bucket, set_up
from groundwork.service.errors import Misconfigured
from schemas import keys, subjects
from tests.kit.bus import DAY

WORK = Spec(
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
EVENTS = Spec(
    "EVENTS",
    {"subjects": ("event.>",), "persist_mode": "async", "max_age": DAY, "max_bytes": 1 << 24, "discard": "old"},
)
WORKERS = Spec(
    "WORK",
    {"filter_subjects": ("work.start", "work.done"), "ack_wait": 30.0, "max_ack_pending": 256, "max_deliver": 10},
    "workers",
)
ONE_TOOL = Spec("WORK", {"filter_subject": "work.request.x", "ack_wait": 30.0}, consumer="tool-x")
FILES = object_bucket("files", {"max_bytes": 1 << 24, "compression": "none", "max_age": 30 * DAY, "storage": "file"})
WHOLE = (WORK, EVENTS, FILES, WORKERS, ONE_TOOL)
OF_WORKERS = "consumer workers of stream WORK"
NAMES = ["stream WORK", "stream EVENTS", "stream OBJ_files", OF_WORKERS, "consumer tool-x of stream WORK"]


def with_(spec: Spec, **more: Any) -> Spec:
    return replace(spec, settings={**spec.settings, **more})


OWN = with_(WORK, subjects=["work.>"])


def kinds(findings: list[Deviation]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.what) for finding in findings]


def told(findings: list[Deviation]) -> list[tuple[str, str, str, str, str]]:
    return [(one.kind, one.what, one.field, one.expected, one.actual) for one in findings]


async def configs(link: NatsLink) -> list[Mapping[str, Any]]:
    stream = await link.client.jetstream().stream_info("WORK")
    consumer = await link.client.jetstream().consumer_info("WORK", "workers")
    return [stream.config.as_dict(), consumer.config.as_dict()]


async def test_what_is_missing_is_found_and_made_once_and_the_second_time_nothing_is_found(link: NatsLink) -> None:
    for _ in range(2):
        findings = await check_topology(link, WHOLE)
        assert kinds(findings) == [("missing", name) for name in NAMES]
    assert kinds(await set_up(link, WHOLE)) == [("created", name) for name in NAMES]
    assert await set_up(link, WHOLE) == []
    assert await check_topology(link, WHOLE) == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (
            (
                with_(OWN, description="Work.", republish=RePublish(src=">", dest="log.>")),
                with_(WORKERS, description="W."),
            ),
            [
                ("stream WORK", "description", "Work.", ""),
                ("stream WORK", "republish", "> to log.>", ""),
                (OF_WORKERS, "description", "W.", ""),
            ],
        ),
        (
            (with_(OWN, max_bytes=1 << 25), with_(WORKERS, ack_wait=5.0)),
            [("stream WORK", "max_bytes", str(1 << 25), str(1 << 26)), (OF_WORKERS, "ack_wait", "5 s", "30 s")],
        ),
    ],
    ids=["was not set", "is another"],
)
async def test_what_differs_is_changed_where_that_is_asked_for_and_all_else_is_as_it_was(
    link: NatsLink, wanted: tuple[Spec, Spec], found: list[tuple[str, str, str, str]]
) -> None:
    await set_up(link, (OWN, WORKERS))
    await link.publish("work.a", b"kept", msg_id="a", headers={})
    before = await configs(link)
    assert told(await set_up(link, wanted)) == [("differs", *one) for one in found]
    assert told(await set_up(link, wanted, changes=lambda _: True)) == [("changed", *one) for one in found]
    assert await check_topology(link, wanted) == await set_up(link, wanted) == []
    changed = dict.fromkeys(field for _, field, _, _ in found)
    assert [{**new, **changed} for new in await configs(link)] == [{**old, **changed} for old in before]
    assert (await link.client.jetstream().stream_info("WORK")).state.messages == 1


async def test_a_list_of_subjects_gets_what_it_lacks_and_keeps_what_else_is_in_it(link: NatsLink) -> None:
    theirs = with_(WORK, subjects=["work.a", "own.>"])
    await set_up(link, (theirs, with_(WORKERS, filter_subjects=["work.a"])))
    wanted = (
        with_(WORK, subjects=["work.a", "work.b", "own.c"]),
        with_(WORKERS, filter_subjects=["work.a", "work.b"]),
    )
    lacks = [(one.what, one.expected) for one in await check_topology(link, wanted)]
    assert lacks == [("stream WORK", "work.b"), (OF_WORKERS, "work.b")]
    assert {(one.kind, one.field) for one in await set_up(link, wanted, changes=lambda _: True)} >= {
        ("changed", "subjects"),
        ("changed", "filter_subjects"),
    }
    stream, consumer = await configs(link)
    assert (stream["subjects"], consumer["filter_subjects"]) == (["work.a", "own.>", "work.b"], ["work.a", "work.b"])
    assert await set_up(link, wanted) == []


async def test_onlookers_hear_of_what_the_streams_have_stored_and_of_nothing_else(link: NatsLink) -> None:
    """A repetition is heard on its subject again, and is not stored again."""
    await set_up(link, topology(max_gib=1))
    onlooker = await link.client.subscribe("log.>")
    names = (subjects.START, subjects.tool_request("echo"), subjects.PROGRESS, subjects.REJECTED)
    for subject in names * 2:
        await link.publish(subject, subject.encode(), msg_id=keys.start(subject), headers={})
    heard = [await onlooker.next_msg(timeout=5) for _ in names]
    assert {message.subject: message.data for message in heard} == {f"log.{name}": name.encode() for name in names}
    await link.client.flush()
    assert onlooker.pending_msgs == 0
    assert [message.header["Nats-Sequence"] for message in heard if message.header] == ["1"] * 4


async def test_an_agent_does_not_start_on_a_stream_that_would_not_keep_what_it_asks_of_people(link: NatsLink) -> None:
    wanted = topology(max_gib=1)
    new = (subjects.WAITING, subjects.REOPENED)
    earlier = (
        one if one.consumer else with_(one, subjects=[name for name in one.settings["subjects"] if name not in new])
        for one in wanted
    )
    await set_up(link, tuple(earlier))
    with pytest.raises(Misconfigured, match=r"AGENTIC.*agent.waiting.*agent.reopened"):
        await check(link)
    await set_up(link, wanted, changes=lambda _: True)
    await check(link)


async def test_one_server_becomes_three_and_what_cannot_be_changed_is_made_anew_with_its_consumers(
    cluster_link: NatsLink,
) -> None:
    executor = Executor("someone", (subjects.tool_request("letter"),))
    await set_up(cluster_link, topology(max_gib=0.05, shared=True, executors=[executor]))
    await cluster_link.publish(subjects.CANCEL, b"kept", msg_id="kept", headers={})
    wanted = topology(max_gib=0.05, shared=True, replicas=3)
    changed = await set_up(cluster_link, wanted, changes=lambda _: True)
    remade = {one.what for one in changed if one.kind == "remade"}
    assert remade == {f"stream {name}" for name in (subjects.STREAM_REQUESTS, subjects.STREAM_PROGRESS)}
    assert await check_topology(cluster_link, wanted) == []
    info = await cluster_link.client.jetstream().stream_info(subjects.STREAM)
    assert (info.config.num_replicas, info.state.messages) == (3, 1)
    kept = await cluster_link.client.jetstream().consumer_info(subjects.STREAM_REQUESTS, "someone")
    assert (kept.config.filter_subjects, kept.config.ack_wait) == ([subjects.tool_request("letter")], 30.0)
