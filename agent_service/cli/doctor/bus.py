"""Checks of the bus and of who should be on it. Nothing is published or created."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from agent_service.bus.topology import topology
from agent_service.cli.doctor.check import Check, ok, warning, wrong
from agent_service.cli.doctor.gateway import gateway
from agent_service.cli.doctor.leases import leases
from agent_service.cli.doctor.letters import dead_letters
from agent_service.cli.doctor.permissions import denied
from agent_service.cli.doctor.places import SKEW
from agent_service.cli.show import seconds
from agent_service.settings import AgentSettings
from groundwork.nats import link as nats_link
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import Finding, check_topology
from groundwork.service.errors import Failure, Unreachable

OLDEST_SERVER = (2, 14, 0)
SMALLEST_PAYLOAD = 1 << 20
CONNECT_WITHIN_S = 2.0
ANSWER_WITHIN_S = 2.0
SERVERS_TO_SIZE = frozenset({"max_bytes", "max_age", "num_replicas"})
"""Settings of streams that are the operator's to choose."""


async def bus(settings: AgentSettings) -> AsyncIterator[Check]:
    """Everything that can be asked of the NATS server, and over it."""
    try:
        link = await nats_link.connect(settings.nats, name="agentic-doctor", timeout_s=CONNECT_WITHIN_S)
    except Unreachable as error:
        yield wrong("nats", str(error), remedy="start one with `agentic dev`, or set nats.urls")
        return
    except Failure as error:
        yield wrong("nats", str(error), remedy="correct the section nats: of the configuration")
        return
    try:
        yield _server(link, settings.nats.servers)
        jetstream = await _jetstream(link)
        yield jetstream
        if jetstream.mark != "wrong":
            yield (streams := await _topology(link))
            if streams.mark != "wrong":
                async for check in leases(link, settings.store):
                    yield check
                yield await dead_letters(link)
        async for check in _login(link):
            yield check
        async for check in gateway(link, settings.tools):
            yield check
    finally:
        await link.close()


def _server(link: NatsLink, servers: str) -> Check:
    text = f"nats-server {link.server_version} at {servers}"
    if tuple(map(int, link.server_version.split("."))) < OLDEST_SERVER:
        return wrong("nats", text, remedy="install nats-server 2.14 or newer")
    if link.max_payload < SMALLEST_PAYLOAD:
        remedy = f"set max_payload to {SMALLEST_PAYLOAD} on the server: larger results would be refused"
        return warning("nats", f"{text}, messages of at most {link.max_payload} bytes", remedy=remedy)
    return ok("nats", text)


async def _jetstream(link: NatsLink) -> Check:
    try:
        await link.request("$JS.API.INFO", b"", timeout_s=ANSWER_WITHIN_S)
    except Failure as error:
        why = link.violation or str(error)
        return wrong(
            "jetstream", f"JetStream does not answer: {why}", remedy="enable it: `jetstream {}` in the server's file"
        )
    return ok("jetstream", "JetStream answers")


async def _topology(link: NatsLink) -> Check:
    wanted = topology()
    try:
        findings = await check_topology(link, wanted)
    except Failure as error:
        return wrong("streams", str(error), remedy="give this login the permission, or ask again later")
    missing = [finding.what for finding in findings if finding.kind == "missing"]
    if missing:
        return wrong("streams", f"there is no {', no '.join(missing)}", remedy="run `agentic setup`")
    differing = [finding for finding in findings if finding.field not in SERVERS_TO_SIZE]
    if differing:
        remedy = "; ".join(dict.fromkeys(finding.remedy.rpartition("or: ")[2] for finding in differing))
        return warning("streams", "; ".join(map(_difference, differing)), remedy=remedy)
    counts = f"{len(wanted.streams)} streams, {len(wanted.consumers)} consumers, {len(wanted.buckets)} buckets"
    return ok("streams", f"{counts}, as they should be")


def _difference(finding: Finding) -> str:
    return f"{finding.what}: {finding.field} is {finding.actual}, expected {finding.expected}"


async def _login(link: NatsLink) -> AsyncIterator[Check]:
    """What the server says of this login, and of the time."""
    try:
        info = json.loads(await link.request("$SYS.REQ.USER.INFO", b"", timeout_s=ANSWER_WITHIN_S))
    except (Failure, ValueError):
        text = "the server does not tell what this login may do"
        yield warning("permissions", text, remedy="allow it to publish $SYS.REQ.USER.INFO, to have it checked")
        return
    yield _permissions(info.get("data") or {})
    yield clock(info.get("server") or {}, datetime.now(UTC))


def _permissions(login: dict[str, Any]) -> Check:
    name = f"{login.get('user') or 'no login'}, account {login.get('account')}"
    refused = denied(login.get("permissions") or {})
    if refused:
        remedy = "allow it to publish them"
        return wrong("permissions", f"{name}: may not publish {', '.join(refused)}", remedy=remedy)
    return ok("permissions", f"{name}: may publish all that the agent publishes")


def clock(server: dict[str, Any], now: datetime) -> Check:
    """This machine's clock against the NATS server's, by what that says of itself."""
    try:
        ahead = now - datetime.fromisoformat(server["time"])
    except (KeyError, TypeError, ValueError):
        return warning("clock", "the server does not tell its time", remedy="compare the clocks of both machines")
    if abs(ahead) > SKEW:
        where = "ahead of" if ahead > timedelta() else "behind"
        text = f"this machine is {seconds(abs(ahead))} {where} the NATS server"
        return warning("clock", text, remedy="set both clocks by NTP: deadlines and timers follow them")
    return ok("clock", f"within {seconds(SKEW)} of the NATS server's")
