"""Checks of what several share: servers, copies and sizes of streams, room of a store, members."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from agent_service.bus.topology import topology
from agent_service.history.plain import duration, ok, warning, wrong
from groundwork.nats import link as nats_link
from groundwork.nats.leases.lease import Role, look_at_all
from groundwork.nats.link import NatsLink
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import info_of
from groundwork.service.errors import Failure
from schemas.permissions import BUCKETS, SHARED_STREAMS, STREAMS
from schemas.status import Finding

ANSWER_WITHIN_S = 2.0
FULL = 0.8
"""The part of a store's room from which on it is told."""
NAMED = 3
START = "start the server that is away, and wait until it has caught up"
START_MOST = "start the servers that are away: more than half have to be there"
BEHIND = (
    "wait a minute; then restart that server: it fetches from the others what is damaged. If that is not enough, stop"
    " it, remove the folder jetstream/ACCOUNT/streams/STREAM of its store_dir, and start it"
)
LEADERLESS = (
    "all servers answer, so copies are damaged: restart the servers one after another. If still none leads, the stream"
    " is lost: `nats stream rm STREAM`, `agentic setup`, and restore a backup if it is AGENTIC_RUNS or AGENTIC_LEDGER"
)
"""What is true where no server is away. (`nats stream cluster peer-remove` needs one more server than replicas.)"""

Json = dict[str, Any]


async def cluster(link: NatsLink, settings: NatsSettings) -> AsyncIterator[Finding]:
    names = (*STREAMS, *SHARED_STREAMS, *BUCKETS)
    infos = [info for info in await asyncio.gather(*(_info(link, name) for name in names)) if info]
    clustered = [info for info in infos if info.get("cluster")]
    if any(info["config"].get("num_replicas", 1) > 1 for info in clustered):
        answering = await servers(settings)
        yield replicas(clustered, all_answer=answering.text.startswith("all "))
        yield answering
    for info in infos:
        if info["config"]["name"] in SHARED_STREAMS:
            yield store_room(info)


def replicas(infos: Iterable[Json], *, all_answer: bool) -> Finding:
    """`all_answer`: all servers that are known."""
    leaders = sorted({leader for info in infos if (leader := info["cluster"].get("leader"))})
    leaderless = [info["config"]["name"] for info in infos if not info["cluster"].get("leader")]
    if leaderless:
        text = f"no server leads {', '.join(leaderless)}: nothing can be stored there"
        return wrong("replicas", text, remedy=LEADERLESS if all_answer else START_MOST)
    behind = [f"{info['config']['name']} on {one['name']} {why}" for info in infos for one, why in _late(info)]
    if behind:
        more = f", and {len(behind) - NAMED} more" if len(behind) > NAMED else ""
        text = f"{'; '.join(behind[:NAMED])}{more}: with one server more away nothing can be stored"
        return warning("replicas", text, remedy=BEHIND if all_answer else START)
    return ok("replicas", f"each stream has all its copies, led by {', '.join(leaders)}")


async def servers(settings: NatsSettings) -> Finding:
    found = await asyncio.gather(*(_version(settings, url) for url in settings.urls))
    away = [why for version, why in found if not version]
    if away:
        return warning("servers", "; ".join(away), remedy="start it, or take its address out of nats.urls")
    versions = sorted({version for version, _ in found})
    if len(versions) > 1:
        text = f"they have versions {', '.join(versions)}"
        return warning("servers", text, remedy="bring all servers to the newest, one after the other")
    if len(found) == 1:
        remedy = "name several in nats.urls, so that a start does not hang on one"
        return warning("servers", f"one address is configured, of nats-server {versions[0]}", remedy=remedy)
    return ok("servers", f"all {len(found)} answer, nats-server {versions[0]}")


def store_room(info: Json) -> Finding:
    name, most, size = info["config"]["name"], info["config"].get("max_bytes", -1), info["state"]["bytes"]
    if most <= 0:
        return ok("store's room", f"{name} may be as large as the server lets it, and has {size / 2**20:.0f} MiB")
    text = f"{name} has {size / 2**20:.0f} of {most / 2**20:.0f} MiB"
    if size < FULL * most:
        return ok("store's room", text)
    remedy = "let finished runs go sooner, or make room: `agentic setup --max-gib N --change`"
    return warning("store's room", f"{text}: full, it takes nothing", remedy=remedy)


async def members(link: NatsLink, role: Role) -> AsyncIterator[Finding]:
    try:
        records = [record for record in await look_at_all(link, role) if not record.free]
    except Failure as error:
        yield wrong(f"{role.key}s", str(error), remedy="run `agentic setup`, or give this login the permission")
        return
    if records:
        told = (f"{one.owner}, renewed {duration(timedelta(seconds=one.age_s))} ago" for one in records)
        yield ok(f"{role.key}s", f"{len(records)} at work: {'; '.join(told)}")


def _late(info: Json) -> Iterable[tuple[Json, str]]:
    for one in info["cluster"].get("replicas") or ():
        if one.get("offline"):
            yield one, "is away"
        elif not one.get("current"):
            yield one, f"is {one['lag']} behind" if one.get("lag") else "is not up to date"


async def _info(link: NatsLink, stream: str) -> Json:
    try:
        info: Json = json.loads(await link.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_s=ANSWER_WITHIN_S))
    except (Failure, ValueError):
        return {}
    return info if "config" in info else {}


async def _version(settings: NatsSettings, url: str) -> tuple[str, str]:
    alone = settings.model_copy(update={"urls": (url,)})
    try:
        link = await nats_link.connect(alone, name="agentic-doctor", timeout_s=ANSWER_WITHIN_S)
    except Failure as error:
        return "", f"{alone.servers}: {error}"
    await link.close()
    return link.server_version, ""


NOTHING: Mapping[str, float] = MappingProxyType({})
REMEDY = "`agentic setup --max-gib N --change` with a larger N, or keep less"


async def room(link: NatsLink, *, shared: bool) -> Finding:
    try:
        found = [await info_of(link, spec) for spec in topology(shared=shared).streams]
        account = await _account(link)
    except Failure as error:
        return warning("room", str(error), remedy="give this login the permission, or ask again later")
    return judged([info for info in found if info], account)


async def _account(link: NatsLink) -> Mapping[str, float]:
    told = json.loads(await link.request("$JS.API.INFO", b"", timeout_s=ANSWER_WITHIN_S))
    most = told.get("limits", {}).get("max_storage", -1)
    return {"what this account may store": told.get("storage", 0) / most} if most > 0 else {}


def judged(streams: Sequence[Json], beside: Mapping[str, float] = NOTHING) -> Finding:
    """`beside`: what else refuses, and how full it is. Where the oldest gives way, a full stream is as it should be."""
    refusing = {info["config"]["name"]: _share(info) for info in streams if info["config"].get("discard") == "new"}
    refusing.update(beside)
    full = [f"{name} is {share:.0%} full" for name, share in refusing.items() if share >= FULL]
    if full:
        return warning("room", f"{', '.join(full)}, and refuses what is beyond", remedy=REMEDY)
    return ok("room", f"the fullest that refuses more is {max(refusing.values(), default=0.0):.0%} full")


def _share(info: Json) -> float:
    most = info["config"].get("max_bytes", 0)
    return float(info["state"]["bytes"] / most) if most > 0 else 0.0
