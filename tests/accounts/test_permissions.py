"""Permissions of roles follow from the streams and consumers of the program, and streams protect their messages."""

import re
from pathlib import Path

import pytest
from nats.js.errors import APIError

from agent_service.bus.topology import topology
from agent_service.cli.doctor.bus import NEEDED, denied
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import subject_matches
from groundwork.nats.topology import set_up
from groundwork.service.errors import Failure
from schemas import permissions, subjects
from schemas.permissions import RoleName, permissions_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "BUS.md").read_text(encoding="utf-8")
TOLD: tuple[RoleName, ...] = ("publisher", "observer", "approver", "operator", "executor")
KEPT = {
    subjects.STREAM: subjects.COMPLETED,
    subjects.STREAM_STARTS: subjects.START,
    subjects.STREAM_RESULTS: subjects.TOOL_RESULT,
}


@pytest.mark.parametrize("role", TOLD)
def test_the_page_on_the_bus_says_what_a_role_may_do(role: RoleName) -> None:
    may = permissions_of(role, "<name>")
    (row,) = re.findall(rf"^\| {role} \|(.*)\|(.*) \|$", PAGE, re.MULTILINE)
    publish, subscribe = (re.findall(r"`([^`]+)`", cell) for cell in row)
    assert sorted(publish) == sorted(subject for subject in may.publish if not subject.startswith("$"))
    assert sorted(subscribe) == sorted(may.subscribe)


def test_the_roles_know_all_streams_and_consumers_and_no_others() -> None:
    made = {one.stream for one in topology()}
    assert {*permissions.STREAMS, *permissions.BUCKETS} == made
    consumers = {*permissions.AGENT_CONSUMERS, *permissions.GATEWAY_CONSUMERS}
    several = topology(shared=True)
    assert consumers == {f"{one.stream}.{one.consumer}" for one in several if one.consumer}
    assert {one.stream for one in several} - made == set(permissions.SHARED_STREAMS)


@pytest.mark.parametrize(("role", "key"), [("agent", subjects.LEASE_AGENT), ("gateway", subjects.LEASE_GATEWAY)])
def test_who_shares_a_store_may_renew_a_lease_of_its_own(role: RoleName, key: str) -> None:
    other = f"$KV.{subjects.LEASE_BUCKET}.{subjects.lease_key(key, 'store_0123456789abcdef')}"
    may = permissions_of(role, role)
    assert any(subject_matches(pattern, other) for pattern in may.publish)


def test_an_agent_may_look_at_all_that_its_start_and_the_doctor_ask_for() -> None:
    may = permissions_of("agent", "agent").publish
    assert denied({"publish": {"allow": may}}, NEEDED) == []
    for stream in {one.stream for one in topology(shared=True)}:
        assert any(subject_matches(pattern, f"$JS.API.STREAM.INFO.{stream}") for pattern in may), stream


async def test_what_is_stored_by_several_gives_way_to_nothing_and_may_be_let_go_by_a_rule(link: NatsLink) -> None:
    await set_up(link, topology(max_gib=1, shared=True))
    fact = subjects.stored_run("wake", "run_1")
    kept = await link.publish(fact, b"theirs", msg_id="theirs", headers={})
    with pytest.raises(APIError):
        await link.client.jetstream().delete_msg(subjects.STREAM_RUNS, kept.seq)
    config = (await link.client.jetstream().stream_info(subjects.STREAM_RUNS)).config
    assert (config.discard, config.max_age or 0) == ("new", 0)
    await link.client.jetstream().purge_stream(subjects.STREAM_RUNS, subject=fact)
    assert (await link.client.jetstream().stream_info(subjects.STREAM_RUNS)).state.messages == 0


@pytest.mark.parametrize("stream", KEPT)
async def test_no_login_and_no_header_of_a_message_takes_a_message_of_work_away(stream: str, link: NatsLink) -> None:
    await set_up(link, topology(max_gib=1))
    kept = (await link.publish(KEPT[stream], b"theirs", msg_id="theirs", headers={})).seq
    for deed in (link.client.jetstream().purge_stream(stream), link.client.jetstream().delete_msg(stream, kept)):
        with pytest.raises(APIError):
            await deed
    for header in ({"Nats-Rollup": "all"}, {"Nats-Rollup": "sub"}, {"Nats-TTL": "1s"}):
        with pytest.raises(Failure):
            await link.publish(KEPT[stream], b"mine", msg_id=str(header), headers=header, within_s=0.2)
    assert (await link.client.jetstream().stream_info(stream)).state.messages == 1
