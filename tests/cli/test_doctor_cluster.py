"""`agentic doctor` on a cluster: which server is away, how full a store is, who is at work."""

from dataclasses import replace
from typing import Any

import pytest

from agent_service.bus.topology import topology
from agent_service.cli.doctor.bus import streams
from agent_service.cli.doctor.cluster import cluster, replicas, store_room
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from schemas import subjects
from schemas.status import Finding
from tests.kit.cluster import Cluster
from tests.kit.waiting import until

SIZE = 0.05


async def looked_at(one: Cluster, link: NatsLink) -> dict[str, Finding]:
    return {check.name: check async for check in cluster(link, one.settings)}


async def test_a_server_that_is_away_is_named_with_what_it_means(cluster: Cluster, cluster_link: NatsLink) -> None:
    await create_missing(cluster_link, topology(replicas=3, max_gib=SIZE, shared=True))
    whole = await looked_at(cluster, cluster_link)
    assert {name: check.mark for name, check in whole.items()} == dict.fromkeys(
        ("replicas", "servers", "store's room"), "ok"
    )
    away, *_ = await cluster.others(subjects.STREAM_RUNS)
    away.kill()
    lame: dict[str, Finding] = {}

    async def is_named() -> bool:
        lame.update(await looked_at(cluster, cluster_link))
        return "replicas" in lame and lame["replicas"].mark == "warning" and away.name in lame["replicas"].text

    await until(is_named, within_s=30, otherwise=lambda: str(lame))
    assert (lame["servers"].mark, str(away.port) in lame["servers"].text) == ("warning", True), lame


def of_stream(**cluster: Any) -> dict[str, Any]:
    return {"config": {"name": "AGENTIC_REQUESTS"}, "cluster": cluster}


@pytest.mark.parametrize(
    ("copy", "says"),
    [
        ({"lag": 1805}, "is 1805 behind"),
        ({}, "is not up to date"),
        ({"offline": True}, "is away"),
    ],
)
def test_where_all_servers_answer_a_copy_that_is_behind_is_to_be_fetched_anew(copy: dict[str, Any], says: str) -> None:
    late = of_stream(leader="n1", replicas=[{"name": "n2", "current": True}, {"name": "n3", "current": False} | copy])
    found = replicas([late], all_answer=True)
    assert (found.mark, f"AGENTIC_REQUESTS on n3 {says}" in found.text) == ("warning", True)
    assert "restart that server" in found.remedy
    assert replicas([late], all_answer=False).remedy.startswith("start the server that is away")


def test_where_all_servers_answer_a_stream_that_nobody_leads_has_damaged_copies() -> None:
    leaderless = of_stream(leader=None, replicas=[{"name": "n1", "current": True}, {"name": "n2", "current": False}])
    found = replicas([leaderless], all_answer=True)
    assert (found.mark, found.text) == ("wrong", "no server leads AGENTIC_REQUESTS: nothing can be stored there")
    assert "copies are damaged: restart the servers one after another" in found.remedy
    assert replicas([leaderless], all_answer=False).remedy.startswith("start the servers that are away")


async def test_a_compressed_stream_is_told_with_what_ends_it(link: NatsLink) -> None:
    wanted = topology(max_gib=SIZE)
    first, *others = wanted.streams
    harmful = replace(first, settings={**first.settings, "compression": "s2"})
    await create_missing(link, replace(wanted, streams=(harmful, *others)))
    found = await streams(link, shared=False)
    assert (found.mark, found.text) == ("warning", "stream AGENTIC: compression is s2, expected none")
    assert found.remedy.startswith("run `agentic setup`, then restart the servers one after another")


def test_a_store_that_is_nearly_full_is_a_warning_with_the_command_that_makes_room() -> None:
    info = {"config": {"name": "AGENTIC_RUNS", "max_bytes": 1000 << 20}, "state": {"bytes": 900 << 20}}
    found = store_room(info)
    assert (found.mark, found.text) == ("warning", "AGENTIC_RUNS has 900 of 1000 MiB: full, it takes nothing")
    assert "--change" in found.remedy
