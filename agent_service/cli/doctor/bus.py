"""Checks of the bus: servers, streams, leases, permissions, executors and their tools. They publish no event and create
nothing."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent_service.bus import health
from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.bus.gateway import statuses
from agent_service.bus.health import stream_trouble
from agent_service.bus.skills import NatsSkills, undeclared
from agent_service.bus.topology import CHANGE, OPERATORS_CHOICE, ROLE, expected, lacking_work
from agent_service.history.text import duration, ok, warning, wrong
from agent_service.settings import AgentSettings
from groundwork.nats.client import START_ONE
from groundwork.nats.lease import LeaseRecord, Role, read_lease, read_member_leases
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.publishing import subject_matches
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import Deviation, Topology, check_topology, info_of
from groundwork.service.errors import Failure, Misconfigured, TryAgain, Unreachable
from groundwork.service.store_folder import known_id
from schemas import subjects
from schemas.catalog import UNNAMED, ToolOffer
from schemas.status import Finding, counted

CONNECT_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 2.0
STATUS_TIMEOUT_S = 5.0
"""The gateway asks Ductile before it answers."""
GATEWAY = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_GATEWAY, command="ductile-gateway serve")
MOST_NAMED = 3
SKEW = timedelta(seconds=5)
CORRECT = "correct that setting, or what the executor named there offers"
START = "start `ductile-gateway serve`; `ductile-gateway check` lists its tools"
PERMISSION = "give this login the permission, or ask again later"
BEHIND = "start the servers that are away, and wait a minute; then restart those behind"
LEADERLESS = "start the servers that are away. If all are there, copies are damaged: restart them one after another"
MORE = "if that is not enough, docs/PERFORMANCE.md#how-large says what to do"
NEEDED = (
    subjects.START,
    subjects.tool_request("x"),
    *subjects.RUN_EVENTS,
    subjects.DEAD_LETTERS_LOOP,
    subjects.DEAD_LETTERS_CONTROL,
    subjects.REJECTED,
    subjects.CATALOG,
    subjects.STATUS,
    f"$KV.{subjects.LEASE_BUCKET}.{subjects.LEASE_AGENT}",
    *(f"$JS.API.STREAM.{asked}.KV_{subjects.LEASE_BUCKET}" for asked in ("INFO", "MSG.GET")),
    *(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}" for name, (stream, _) in subjects.AGENT_CONSUMERS.items()),
    *(f"$JS.ACK.{stream}.{name}.1.1.1.1.1" for name, (stream, _) in subjects.AGENT_CONSUMERS.items()),
)
"""One subject of each kind that the agent publishes to."""

Json = dict[str, Any]
_connected = partial(connect, name="agentic-doctor", timeout_s=CONNECT_TIMEOUT_S)


async def bus(settings: AgentSettings) -> AsyncIterator[Finding]:
    async with AsyncExitStack() as opened:
        try:
            link = await opened.enter_async_context(_connected(settings.nats))
        except Failure as error:
            remedy = START_ONE if isinstance(error, Unreachable) else "correct the section nats: of the configuration"
            yield wrong("nats", str(error).removesuffix(f": {START_ONE}"), remedy=remedy)
            return
        yield health.server(link)
        yield (jetstream := await health.jetstream(link))
        probes = {"streams": _streams(link, settings), "permissions": _permissions(link, settings.nats)}
        if jetstream.mark == "wrong":
            del probes["streams"]
        for name, probe in (probes | {"gateway": gateway(link, settings)}).items():
            try:
                async for check in probe:
                    yield check
            except Failure as error:
                yield wrong(name, str(error), remedy=PERMISSION)


async def _streams(link: NatsLink, settings: AgentSettings) -> AsyncIterator[Finding]:
    wanted = await expected(link, shared=settings.shared)
    found = await check_topology(link, wanted)
    infos = [info for spec in wanted if not spec.consumer and (info := await info_of(link, spec))]
    yield (finding := compared(wanted, found))
    if finding.mark == "wrong":
        return
    clustered = [info for info in infos if info.get("cluster")]
    if any(info["config"].get("num_replicas", 1) > 1 for info in clustered):
        yield replicas(clustered)
    yield room(infos)
    yield await health.dead_letters(NatsDeadLetters(link))
    for role in (ROLE, GATEWAY):
        async for check in _leases(link, settings, role):
            yield check


def compared(wanted: Topology, found: Sequence[Deviation]) -> Finding:
    if missing := [finding.what for finding in found if finding.kind == "missing"]:
        return wrong("streams", f"there is no {_few(missing, ', no ')}", remedy="run `agentic setup`")
    if deaf := lacking_work(found):
        return wrong("streams", _difference(deaf), remedy=CHANGE)
    if differing := [finding for finding in found if finding.field not in OPERATORS_CHOICE]:
        return warning("streams", "; ".join(map(_difference, differing)), remedy=CHANGE)
    return ok("streams", f"{len(wanted)} streams, buckets and consumers, as configured")


def _few(texts: Sequence[str], between: str) -> str:
    more = f", and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return between.join(texts[:MOST_NAMED]) + more


def _difference(finding: Deviation) -> str:
    return f"{finding.what}: {finding.field} is {finding.actual or 'not set'}, expected {finding.expected}"


async def _leases(link: NatsLink, settings: AgentSettings, role: Role) -> AsyncIterator[Finding]:
    """Reports who is at work: the holder of the lease, or each process of a shared store with its own lease."""
    name, record = f"{role.key} lease", await read_lease(link, role)
    if several := [one for one in await read_member_leases(link, role) if not one.free]:
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


def replicas(infos: Sequence[Json]) -> Finding:
    if leaderless := [info["config"]["name"] for info in infos if not info["cluster"].get("leader")]:
        text = f"no server leads {', '.join(leaderless)}: nothing can be stored there"
        return wrong("replicas", text, remedy=f"{LEADERLESS}; {MORE}")
    copies = [(info["config"]["name"], copy) for info in infos for copy in info["cluster"].get("replicas") or ()]
    if late := [f"{name} on {copy['name']} {lag}" for name, copy in copies if (lag := _lag(copy))]:
        text = f"{_few(late, '; ')}: with one server more away nothing can be stored"
        return warning("replicas", text, remedy=f"{BEHIND}; {MORE}")
    leaders = sorted({info["cluster"]["leader"] for info in infos})
    return ok("replicas", f"each stream has all its copies, led by {', '.join(leaders)}")


def _lag(copy: Json) -> str:
    return "is away" if copy.get("offline") else "" if copy.get("current") else f"is {copy.get('lag', 0)} behind"


def room(streams: Iterable[Json]) -> Finding:
    if full := [text for info in streams for text in stream_trouble(info)]:
        remedy = "delete finished runs sooner, or make room: `agentic setup --max-gib N --change`"
        return warning("room", "; ".join(full), remedy=remedy)
    return ok("room", "no stream with a size limit is nearly full")


async def _permissions(link: NatsLink, settings: NatsSettings) -> AsyncIterator[Finding]:
    try:
        info = json.loads(await link.request("$SYS.REQ.USER.INFO", b"", timeouts_s=(REQUEST_TIMEOUT_S,)))
        user, server_time = info["data"], datetime.fromisoformat(info["server"]["time"])
    except (Failure, ValueError, LookupError, TypeError):
        remedy = "allow it to publish $SYS.REQ.USER.INFO, to have it checked"
        yield warning("permissions", "the server does not report the permissions of this login", remedy=remedy)
    else:
        name = f"{user.get('user') or 'no login'}, account {user.get('account')}"
        if refused := denied(user.get("permissions") or {}):
            text = f"{name}: may not publish {', '.join(refused)}"
            yield wrong("permissions", text, remedy="allow it to publish them")
        else:
            yield ok("permissions", f"{name}: may publish everything that the agent sends")
        yield clock(datetime.now(UTC) - server_time)
    yield await login(settings)


async def login(bus: NatsSettings) -> Finding:
    remedy = "deploy/nats/prepare.py prepares a server with a key for each login, least permissions and TLS"
    with suppress(Misconfigured):  # it is refused
        async with _connected(bus.without_login()):
            text = "the bus takes connections without a login: each may answer for tools, approve and cancel"
            return warning("login", text, remedy=remedy)
    if bus.plaintext_hosts:
        text = f"messages to {', '.join(bus.plaintext_hosts)} are not encrypted, nor are passwords"
        return warning("login", text, remedy="use tls:// in nats.urls, and nats.tls_ca")
    return ok("login", "connections without one are refused")


def clock(ahead: timedelta) -> Finding:
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


async def gateway(link: NatsLink, settings: AgentSettings) -> AsyncIterator[Finding]:
    try:
        reports = await statuses(link, within_s=STATUS_TIMEOUT_S)
    except Failure:
        reports = ()
        yield warning("gateway", "no gateway reports its status", remedy=START)
    except ValidationError:
        yield wrong("gateway", "what answers is not a gateway", remedy="run both services in the same version")
        return
    for status in reports:
        for one in status.findings:
            yield one.model_copy(update={"text": f"{one.text} ({status.gateway})"}) if status.gateway else one
    if silent := max((status.gateways for status in reports), default=0) - len(reports):
        yield warning("gateway", f"{silent} more do not report their status", remedy="see their logs")
    async for one in _tools(NatsSkills(link, settings), "see above" if reports else START):
        yield one


async def _tools(skills: NatsSkills, start: str) -> AsyncIterator[Finding]:
    try:
        tools = (await skills.catalog()).tools
    except TryAgain as nothing:
        yield wrong("tools", str(nothing), remedy=CORRECT if skills.problems else start)
        return
    if problems := skills.all_problems:
        yield warning("tools", "; ".join(problems), remedy=CORRECT)
    elif tools:
        yield ok("tools", f"{counted(len(tools), 'tools')}: {', '.join(map(_offer, tools))}")
    else:
        yield wrong("tools", "there is no tool that a run may use", remedy=START)
    if plain := [offer.name for offer in tools if not offer.echoes_capability]:
        text = f"each login that may publish results can answer for {', '.join(plain)}"
        echo = "have their executors echo `capability`, as docs/BUS.md says"
        yield warning("results", text, remedy=f"{echo}; then set agent.tools.require_capability: true")
    elif tools:
        yield ok("results", "each has to prove which request it answers")
    if untrusted := ", ".join(undeclared(tools)):
        text = f"results of {untrusted} count as untrusted: their executor does not declare them"
        remedy = f"for tools that bring your own data, such as sensors, set agent.trusted: [{untrusted}]"
        yield warning("trust", text, remedy=remedy)


def _offer(tool: ToolOffer) -> str:
    tiers = sorted({command.tier for command in tool.commands})
    whose = "" if tool.executor in (UNNAMED, subjects.SERVICE_GATEWAY) else f" of {tool.executor}"
    return f"{tool.name}{whose} ({'/'.join(tiers)})"


def id_of(store: Path) -> str:
    """Returns "" for an unreadable store; the check of the folder reports that."""
    with suppress(OSError):
        return known_id(store)
    return ""
