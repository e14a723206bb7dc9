"""The composition of what operators ask beyond waking, watching and cancelling runs; loaded when callers are let in."""

import socket
from collections.abc import Mapping, Sequence
from functools import partial

from agent_service.admission.spending import SETTING, Spending
from agent_service.api.app import Operations, create_app
from agent_service.api.desk import Desk, Fresh, Switch
from agent_service.api.handlers.dead_letters import DeadLetterCalls
from agent_service.api.handlers.inbox import InboxCalls
from agent_service.api.handlers.inspection import Inspection, WhyCalls
from agent_service.api.handlers.operating import DrainCalls, PruneCalls, StoppingCalls
from agent_service.api.handlers.service import HealthCalls, Look, Part
from agent_service.api.handlers.tools import ToolCalls
from agent_service.api.streams.events import EventStreams
from agent_service.bootstrap import Agent, prompt_of
from agent_service.bus import findings
from agent_service.bus.dead_letters import MOST_LETTERS, NatsDeadLetters
from agent_service.bus.gateway import NatsTroubles
from agent_service.bus.reading import NatsWhereabouts
from agent_service.core.waiting import Status
from agent_service.history.plain import ok, warning
from agent_service.settings import AgentSettings
from groundwork.http.metrics import Measured, request_durations
from groundwork.http.server import serve_http as http
from groundwork.nats.leases.members import Members
from groundwork.service.installed import installed_version
from groundwork.telemetry.metrics import Instruments, exposition
from schemas import subjects
from schemas.status import Finding

FRESH_S = 2.0
"""Seconds that the gateway's status is reused."""
UNDER_WAY = (Status.QUEUED, Status.RUNNING, Status.PAUSED)


async def serve_http(
    agent: Agent, desk: Desk, switch: Switch, fresh: Fresh, observed: Instruments, listener: socket.socket
) -> None:
    members = agent.ground.members
    app = create_app(
        desk,
        agent.folders,
        agent.ready,
        agent.settings,
        operations=_operations(agent, desk, switch),
        streams=EventStreams(agent.feed, agent.store, agent.store),
        metrics=partial(exposition, observed, subjects.SERVICE_AGENT),
        fresh=fresh,
        member=members.me if members else None,
    )
    measured = Measured(app, request_durations(agent.metrics.instruments))
    await http(measured, listener, stopping=agent.feed.end)


def _operations(agent: Agent, desk: Desk, switch: Switch) -> Operations:
    link, store, skills = agent.ground.link, agent.store, agent.skills
    letters, troubles = NatsDeadLetters(link, most=MOST_LETTERS), NatsTroubles(link, fresh_s=FRESH_S)
    now = NatsTroubles(link, fresh_s=0)

    async def this_agent() -> Sequence[Finding]:
        of_agent = _of_the_agent(agent.settings, await store.counts())
        return [of_agent, *_of_company(agent.ground.members), *_of_money(agent.limits.spending)]

    async def nats() -> Sequence[Finding]:
        return [findings.server(link), await findings.jetstream(link), await findings.dead_letters(letters)]

    looks: dict[Part, Look] = {"agent": this_agent, "gateway": partial(findings.gateway, troubles), "nats": nats}
    return Operations(
        inspection=Inspection(store, desk.reader, prompt_of),
        inbox=InboxCalls(store, store.inbox, letters),
        letters=DeadLetterCalls(letters),
        health=HealthCalls(agent.ready, looks),
        why=WhyCalls(store, store.inbox, NatsWhereabouts(link), letters, skills, now.status, agent.ready),
        stopping=StoppingCalls(switch),
        draining=DrainCalls(agent.draining),
        pruning=PruneCalls(agent.pruning, agent.beside_runs),
        tools=ToolCalls(skills, lambda: skills.complaints),
    )


def _of_the_agent(settings: AgentSettings, counts: Mapping[Status, int]) -> Finding:
    model = settings.model
    thinks = f"{model.provider}: {', '.join(model.names())}" if model.provider != "scripted" else "a script"
    runs = ", ".join(f"{counts[status]} {status}" for status in UNDER_WAY)
    return ok("agent", f"version {installed_version()}, {runs}; who thinks is {thinks}")


def _of_company(members: Members | None) -> Sequence[Finding]:
    if members is None:
        return ()
    others = "; ".join(f"{name} ({who})" for name, who in sorted(members.who.items()))
    return (ok("agents", f"this is {members.me}, {f'beside {others}' if others else 'the only one now'}"),)


def _of_money(spending: Spending) -> Sequence[Finding]:
    if spending.usd_per_day is None:
        return ()
    if why := spending.reached:
        return (
            warning("money", f"no model is asked: {why}", remedy=f"wait for the day to end (UTC), or raise {SETTING}"),
        )
    return (ok("money", f"{spending.spent_usd:.4f} of {spending.usd_per_day:.4f} USD of today are spent"),)
