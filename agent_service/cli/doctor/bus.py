"""Checks of the bus and of who should be on it. Nothing is published or created."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent_service.bus import findings
from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.bus.messages import CONTROL, RESULTS, STARTS
from agent_service.bus.topology import OPERATORS_CHOICE, ROLE, expected, lacking_work, remedy_of
from agent_service.cli.doctor.cluster import cluster, members, room
from agent_service.cli.doctor.machine import SKEW
from agent_service.cli.doctor.tools import gateway
from agent_service.history.plain import duration, ok, warning, wrong
from agent_service.settings import AgentSettings
from groundwork.nats import link as nats_link
from groundwork.nats.leases.lease import Record, Role, look
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import matches
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import COMPRESSION, RESTART, Deviation, check_topology
from groundwork.service.errors import Failure, Misconfigured, Unreachable
from groundwork.service.store_folder import known_id
from schemas import subjects
from schemas.status import Finding

CONNECT_WITHIN_S = 5.0
ANSWER_WITHIN_S = 2.0
GATEWAY = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_GATEWAY, command="ductile-gateway serve")
SAMPLE = "x"
"""Stands for any name or number in a subject."""
NEEDED = (
    subjects.START,
    subjects.tool_request(SAMPLE),
    *subjects.TOLD,
    subjects.DEAD_LETTERS_LOOP,
    subjects.DEAD_LETTERS_CONTROL,
    subjects.REJECTED,
    subjects.CATALOG,
    subjects.STATUS,
    f"$KV.{subjects.LEASE_BUCKET}.{subjects.LEASE_AGENT}",
    *(f"$JS.API.STREAM.{asked}.KV_{subjects.LEASE_BUCKET}" for asked in ("INFO", "MSG.GET")),
    *(
        of_consumer
        for source in (STARTS, RESULTS, CONTROL)
        for of_consumer in (
            f"$JS.API.CONSUMER.MSG.NEXT.{source.stream}.{source.durable}",
            f"$JS.ACK.{source.stream}.{source.durable}.1.1.1.1.1",
        )
    ),
)
"""What the agent publishes, a sample of each kind."""


async def bus(settings: AgentSettings) -> AsyncIterator[Finding]:
    try:
        link = await nats_link.connect(settings.nats, name="agentic-doctor", timeout_s=CONNECT_WITHIN_S)
    except Unreachable as error:
        yield wrong("nats", str(error), remedy="start one with `agentic dev`, or set nats.urls")
        return
    except Failure as error:
        yield wrong("nats", str(error), remedy="correct the section nats: of the configuration")
        return
    try:
        yield findings.server(link)
        jetstream = await findings.jetstream(link)
        yield jetstream
        if jetstream.mark != "wrong":
            yield (kept := await streams(link, shared=settings.shared))
            if kept.mark != "wrong":
                async for check in _kept(link, settings):
                    yield check
        async for check in _login(link):
            yield check
        yield await door(settings.nats)
        async for check in gateway(link, settings):
            yield check
    finally:
        await link.close()


async def _kept(link: NatsLink, settings: AgentSettings) -> AsyncIterator[Finding]:
    async for check in leases(link, settings.store, shared=settings.shared):
        yield check
    for role in (ROLE, GATEWAY):
        async for check in members(link, role):
            yield check
    async for check in cluster(link, settings.nats):
        yield check
    yield await room(link, shared=settings.shared)
    yield await findings.dead_letters(NatsDeadLetters(link))


async def streams(link: NatsLink, *, shared: bool) -> Finding:
    try:
        wanted = await expected(link, shared=shared)
        findings = await check_topology(link, wanted)
    except Failure as error:
        return wrong("streams", str(error), remedy="give this login the permission, or ask again later")
    missing = [finding.what for finding in findings if finding.kind == "missing"]
    if missing:
        return wrong("streams", f"there is no {', no '.join(missing)}", remedy="run `agentic setup`")
    if deaf := lacking_work(findings):
        return wrong("streams", _difference(deaf), remedy="run `agentic setup`")
    differing = [finding for finding in findings if finding.field not in OPERATORS_CHOICE]
    if differing:
        remedy = "; ".join(dict.fromkeys(map(_remedy, differing)))
        return warning("streams", "; ".join(map(_difference, differing)), remedy=remedy)
    counts = f"{len(wanted.streams)} streams and buckets, {len(wanted.consumers)} consumers"
    return ok("streams", f"{counts}, as they should be")


def _remedy(finding: Deviation) -> str:
    return f"{remedy_of(finding)}, then {RESTART}" if finding.field == COMPRESSION else remedy_of(finding)


def _difference(finding: Deviation) -> str:
    if finding.lacks:
        return f"{finding.what}: {finding.field} lacks {finding.expected}"
    return f"{finding.what}: {finding.field} is {finding.actual or 'not set'}, expected {finding.expected}"


async def _login(link: NatsLink) -> AsyncIterator[Finding]:
    try:
        info = json.loads(await link.request("$SYS.REQ.USER.INFO", b"", timeout_s=ANSWER_WITHIN_S))
    except (Failure, ValueError):
        text = "the server does not tell what this login may do"
        yield warning("permissions", text, remedy="allow it to publish $SYS.REQ.USER.INFO, to have it checked")
        return
    yield _permissions(info.get("data") or {})
    yield clock(info.get("server") or {}, datetime.now(UTC))


async def door(bus: NatsSettings) -> Finding:
    remedy = "deploy/nats/prepare.py prepares a server with a key for each login, least permissions and TLS"
    with contextlib.suppress(Misconfigured):  # it is refused
        stranger = await nats_link.connect(bus.without_login(), name="agentic-doctor", timeout_s=CONNECT_WITHIN_S)
        await stranger.close()
        text = "the bus lets in anybody who reaches it: whoever does may answer for tools, approve and cancel"
        return warning("login", text, remedy=remedy)
    if bus.in_the_clear:
        text = f"what is said to {', '.join(bus.in_the_clear)} is said in the clear, passwords too"
        return warning("login", text, remedy="use tls:// in nats.urls, and nats.tls_ca")
    return ok("login", "nobody is let in without one")


def _permissions(login: dict[str, Any]) -> Finding:
    name = f"{login.get('user') or 'no login'}, account {login.get('account')}"
    refused = denied(login.get("permissions") or {})
    if refused:
        remedy = "allow it to publish them"
        return wrong("permissions", f"{name}: may not publish {', '.join(refused)}", remedy=remedy)
    return ok("permissions", f"{name}: may publish all that the agent publishes")


def clock(server: dict[str, Any], now: datetime) -> Finding:
    try:
        ahead = now - datetime.fromisoformat(server["time"])
    except (KeyError, TypeError, ValueError):
        return warning("clock", "the server does not tell its time", remedy="compare the clocks of both machines")
    if abs(ahead) > SKEW:
        where = "ahead of" if ahead > timedelta() else "behind"
        text = f"this machine is {duration(abs(ahead))} {where} the NATS server"
        return warning("clock", text, remedy="set both clocks by NTP: deadlines and timers follow them")
    return ok("clock", f"within {duration(SKEW)} of the NATS server's")


async def leases(link: NatsLink, store: Path, *, shared: bool) -> AsyncIterator[Finding]:
    """`store`: of the configured agent. Members of a shared store hold no such lease: see `members`."""
    for role in (ROLE, GATEWAY):
        name = f"{role.key} lease"
        try:
            record = await look(link, role)
        except Failure as error:
            yield wrong(name, str(error), remedy="run `agentic setup`, or give this login the permission")
            continue
        if shared and (record is None or record.free):
            continue
        if role is ROLE and _is_strangers(record, store):
            yield warning(
                name,
                f"held by an agent with another store than {store}: {_told(record)}",
                remedy=f"stop that one, use its store, or take its place: `{role.command} --take-over`",
            )
        else:
            yield ok(name, _told(record))


def _is_strangers(record: Record | None, store: Path) -> bool:
    own = ""
    with contextlib.suppress(OSError):  # that it cannot be read is told by another check
        own = known_id(store)
    return record is not None and not record.free and record.owner.holder != own


def _told(record: Record | None) -> str:
    if record is None:
        return "nobody has had it yet"
    ago = duration(timedelta(seconds=record.age_s))
    if record.free:
        how = "given back" if record.owner.released else "not renewed"
        return f"free: {how} {ago} ago by {record.owner}"
    return f"{record.owner}, renewed {ago} ago, epoch {record.owner.epoch}"


def denied(permissions: Mapping[str, Any], wanted: Iterable[str] = NEEDED) -> list[str]:
    """Those of `wanted` that a login with these permissions (`publish: {allow, deny}`) may not publish."""
    publish = permissions.get("publish") or {}
    allow, deny = publish.get("allow"), publish.get("deny") or ()
    return [
        subject for subject in wanted if (allow and not _any_matches(allow, subject)) or _any_matches(deny, subject)
    ]


def _any_matches(patterns: Iterable[str], subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in patterns)
