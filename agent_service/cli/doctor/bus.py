"""Checks of the bus: servers, streams, leases, permissions. They publish and create nothing."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from agent_service.bus import health
from agent_service.bus.capacity import stream_trouble
from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.bus.topology import CHANGE, OPERATORS_CHOICE, ROLE, expected, lacking_work
from agent_service.cli.doctor.machine import id_of
from agent_service.cli.doctor.tools import gateway
from agent_service.history.text import duration, ok, warning, wrong
from agent_service.settings import AgentSettings
from groundwork.nats import link as nats_link
from groundwork.nats.client import START_ONE
from groundwork.nats.lease import LeaseRecord, Role, read_lease, read_member_leases
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import subject_matches
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import Deviation, Topology, check_topology, info_of
from groundwork.service.errors import Failure, Misconfigured, Unreachable
from schemas import subjects
from schemas.status import Finding

CONNECT_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 2.0
GATEWAY = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_GATEWAY, command="ductile-gateway serve")
MAX_NAMED = 3
SKEW = timedelta(seconds=5)
PERMISSION = "give this login the permission, or ask again later"
BEHIND = (
    "start the servers that are away, and wait a minute; then restart those behind: they fetch from the others what "
    "is damaged. If that is not enough, stop one, remove the folder jetstream/ACCOUNT/streams/STREAM of its "
    "store_dir, and start it"
)
LEADERLESS = (
    "start the servers that are away: more than half have to be there. If all are, copies are damaged: restart them "
    "one after another. If still none leads, the stream is lost: `nats stream rm STREAM`, `agentic setup`, and "
    "restore a backup if it is AGENTIC_RUNS or AGENTIC_LEDGER"
)
"""`nats stream cluster peer-remove` is no remedy: it needs one server more than there are replicas."""
SAMPLE = "x"
"""Placeholder for a name or number in a subject."""
NEEDED = (
    subjects.START,
    subjects.tool_request(SAMPLE),
    *subjects.RUN_EVENTS,
    subjects.DEAD_LETTERS_LOOP,
    subjects.DEAD_LETTERS_CONTROL,
    subjects.REJECTED,
    subjects.CATALOG,
    subjects.STATUS,
    f"$KV.{subjects.LEASE_BUCKET}.{subjects.LEASE_AGENT}",
    *(f"$JS.API.STREAM.{asked}.KV_{subjects.LEASE_BUCKET}" for asked in ("INFO", "MSG.GET")),
    *(
        of_consumer
        for name in (subjects.DURABLE_STARTS, subjects.DURABLE_LOOP, subjects.DURABLE_CONTROL)
        for of_consumer in (
            f"$JS.API.CONSUMER.MSG.NEXT.{subjects.CONSUMERS[name][0]}.{name}",
            f"$JS.ACK.{subjects.CONSUMERS[name][0]}.{name}.1.1.1.1.1",
        )
    ),
)
"""One subject of each kind that the agent publishes to."""

Json = dict[str, Any]


async def bus(settings: AgentSettings) -> AsyncIterator[Finding]:
    try:
        link = await nats_link.connect(settings.nats, name="agentic-doctor", timeout_s=CONNECT_TIMEOUT_S)
    except Failure as error:
        remedy = START_ONE if isinstance(error, Unreachable) else "correct the section nats: of the configuration"
        yield wrong("nats", str(error).removesuffix(f": {START_ONE}"), remedy=remedy)
        return
    try:
        yield health.server(link)
        yield (jetstream := await health.jetstream(link))
        if jetstream.mark != "wrong":
            async for check in _streams(link, settings):
                yield check
        async for check in _permissions(link):
            yield check
        yield await login(settings.nats)
        async for check in gateway(link, settings):
            yield check
    finally:
        await link.close()


async def _streams(link: NatsLink, settings: AgentSettings) -> AsyncIterator[Finding]:
    try:
        wanted = await expected(link, shared=settings.shared)
        found = await check_topology(link, wanted)
        infos = [info for spec in wanted if not spec.consumer and (info := await info_of(link, spec))]
    except Failure as error:
        yield wrong("streams", str(error), remedy=PERMISSION)
        return
    yield (finding := compared(wanted, found))
    if finding.mark == "wrong":
        return
    for role in (ROLE, GATEWAY):
        async for check in _leases(link, settings, role):
            yield check
    clustered = [info for info in infos if info.get("cluster")]
    if any(info["config"].get("num_replicas", 1) > 1 for info in clustered):
        yield replicas(clustered)
    yield room(infos)
    yield await health.dead_letters(NatsDeadLetters(link))


def compared(wanted: Topology, found: Sequence[Deviation]) -> Finding:
    if missing := [finding.what for finding in found if finding.kind == "missing"]:
        return wrong("streams", f"there is no {', no '.join(missing)}", remedy="run `agentic setup`")
    if deaf := lacking_work(found):
        return wrong("streams", _difference(deaf), remedy=CHANGE)
    if differing := [finding for finding in found if finding.field not in OPERATORS_CHOICE]:
        return warning("streams", "; ".join(map(_difference, differing)), remedy=CHANGE)
    consumers = sum(bool(spec.consumer) for spec in wanted)
    counts = f"{len(wanted) - consumers} streams and buckets, {consumers} consumers"
    return ok("streams", f"{counts}, as configured")


def _difference(finding: Deviation) -> str:
    return f"{finding.what}: {finding.field} is {finding.actual or 'not set'}, expected {finding.expected}"


async def _leases(link: NatsLink, settings: AgentSettings, role: Role) -> AsyncIterator[Finding]:
    """Reports who is at work: the holder of the lease, or each process of a shared store with its own lease."""
    name = f"{role.key} lease"
    try:
        record = await read_lease(link, role)
        several = [one for one in await read_member_leases(link, role) if not one.free]
    except Failure as error:
        yield wrong(name, str(error), remedy=f"run `agentic setup`, or {PERMISSION}")
        return
    if several:
        yield ok(f"{role.key}s", f"{len(several)} at work: {'; '.join(map(_holder, several))}")
    is_free = record is None or record.free
    if settings.shared and is_free:
        return
    if record and role is ROLE and not is_free and record.owner.holder != id_of(settings.store):
        remedy = f"stop that one, use its store, or take its place: `{role.command} --take-over`"
        text = f"held by an agent with another store than {settings.store}: {_holder(record)}"
        yield warning(name, text, remedy=remedy)
    else:
        yield ok(name, _holder(record) if record else "not held by any process yet")


def _holder(record: LeaseRecord) -> str:
    ago = duration(timedelta(seconds=record.age_s))
    if not record.free:
        return f"{record.owner}, renewed {ago} ago, epoch {record.owner.epoch}"
    return f"free: {'given back' if record.owner.released else 'not renewed'} {ago} ago by {record.owner}"


def replicas(infos: Iterable[Json]) -> Finding:
    leaders, leaderless, late = set[str](), list[str](), list[str]()
    for info in infos:
        name, cluster = info["config"]["name"], info["cluster"]
        if leader := cluster.get("leader"):
            leaders.add(leader)
        else:
            leaderless.append(name)
        for one in cluster.get("replicas") or ():
            if one.get("offline") or not one.get("current"):
                lag = f"is {one['lag']} behind" if one.get("lag") else "is not up to date"
                late.append(f"{name} on {one['name']} {'is away' if one.get('offline') else lag}")
    if leaderless:
        text = f"no server leads {', '.join(leaderless)}: nothing can be stored there"
        return wrong("replicas", text, remedy=LEADERLESS)
    if late:
        more = f", and {len(late) - MAX_NAMED} more" if len(late) > MAX_NAMED else ""
        text = f"{'; '.join(late[:MAX_NAMED])}{more}: with one server more away nothing can be stored"
        return warning("replicas", text, remedy=BEHIND)
    return ok("replicas", f"each stream has all its copies, led by {', '.join(sorted(leaders))}")


def room(streams: Iterable[Json]) -> Finding:
    if full := [text for info in streams for text in stream_trouble(info)]:
        remedy = "delete finished runs sooner, or make room: `agentic setup --max-gib N --change`"
        return warning("room", "; ".join(full), remedy=remedy)
    return ok("room", "no stream with a size limit is nearly full")


async def _permissions(link: NatsLink) -> AsyncIterator[Finding]:
    info: Json = {}
    with suppress(Failure, ValueError):
        info = json.loads(await link.request("$SYS.REQ.USER.INFO", b"", timeouts_s=(REQUEST_TIMEOUT_S,)))
    if not info:
        remedy = "allow it to publish $SYS.REQ.USER.INFO, to have it checked"
        yield warning("permissions", "the server does not report the permissions of this login", remedy=remedy)
        return
    login = info.get("data") or {}
    name = f"{login.get('user') or 'no login'}, account {login.get('account')}"
    if refused := denied(login.get("permissions") or {}):
        text = f"{name}: may not publish {', '.join(refused)}"
        yield wrong("permissions", text, remedy="allow it to publish them")
    else:
        yield ok("permissions", f"{name}: may publish everything that the agent sends")
    yield clock(info.get("server") or {}, datetime.now(UTC))


async def login(bus: NatsSettings) -> Finding:
    remedy = "deploy/nats/prepare.py prepares a server with a key for each login, least permissions and TLS"
    try:
        stranger = await nats_link.connect(bus.without_login(), name="agentic-doctor", timeout_s=CONNECT_TIMEOUT_S)
    except Misconfigured:
        pass  # it is refused
    except Failure as error:
        why = str(error).removesuffix(f": {START_ONE}")
        return warning("login", f"a connection without one could not be tried: {why}", remedy="ask again later")
    else:
        await stranger.close()
        text = "the bus takes connections without a login: each may answer for tools, approve and cancel"
        return warning("login", text, remedy=remedy)
    if bus.plaintext_hosts:
        text = f"messages to {', '.join(bus.plaintext_hosts)} are not encrypted, nor are passwords"
        return warning("login", text, remedy="use tls:// in nats.urls, and nats.tls_ca")
    return ok("login", "connections without one are refused")


def clock(server: Json, now: datetime) -> Finding:
    try:
        ahead = now - datetime.fromisoformat(server["time"])
    except (KeyError, TypeError, ValueError):
        return warning("clock", "the server does not report its time", remedy="compare the clocks of both machines")
    if abs(ahead) > SKEW:
        where = "ahead of" if ahead > timedelta() else "behind"
        text = f"this machine is {duration(abs(ahead))} {where} the NATS server"
        return warning("clock", text, remedy="set both clocks by NTP: deadlines and timers follow them")
    return ok("clock", f"within {duration(SKEW)} of the NATS server's")


def denied(permissions: Mapping[str, Any], wanted: Iterable[str] = NEEDED) -> list[str]:
    """Returns the `wanted` subjects that a login with these permissions (`publish: {allow, deny}`) may not publish."""
    publish = permissions.get("publish") or {}
    allow, deny = publish.get("allow") or (">",), publish.get("deny") or ()

    def fits(patterns: Iterable[str], subject: str) -> bool:
        return any(subject_matches(pattern, subject) for pattern in patterns)

    return [subject for subject in wanted if not fits(allow, subject) or fits(deny, subject)]
