"""What operators ask beyond waking, watching and cancelling runs, put together: a part of the composition root.

Loaded when callers are let in, for it takes time to load.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from agent_service.admission.spending import SETTING, Spending
from agent_service.api.app import Operations
from agent_service.api.desk import Switch
from agent_service.api.handlers.dead_letters import DeadLetterCalls
from agent_service.api.handlers.inbox import InboxCalls
from agent_service.api.handlers.inspection import Inspection, WhyCalls
from agent_service.api.handlers.operating import DrainCalls, PruneCalls, StoppingCalls
from agent_service.api.handlers.service import HealthCalls, Look, Part, Readiness
from agent_service.api.handlers.tools import ToolCalls
from agent_service.archive.pruning import Pruning
from agent_service.archive.retention import BesideRuns
from agent_service.bus import findings
from agent_service.bus.dead_letters import MOST_LETTERS, NatsDeadLetters
from agent_service.bus.gateway import NatsTroubles
from agent_service.bus.reading import NatsWhereabouts
from agent_service.bus.skills import NatsSkills
from agent_service.core.waiting import Status
from agent_service.kill_switch import Draining
from agent_service.run.ports import PromptText, Question
from agent_service.settings import AgentSettings
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.plain import ok, warning
from groundwork.nats.leases.members import Members
from groundwork.nats.link import NatsLink
from groundwork.service.installed import installed_version
from schemas.status import Finding

FRESH_S = 2.0
"""How old what the gateway said of itself may be."""
UNDER_WAY = (Status.QUEUED, Status.RUNNING, Status.PAUSED)


def operations(
    settings: AgentSettings,
    store: SqliteStore,
    link: NatsLink,
    skills: NatsSkills,
    readiness: Readiness,
    switch: Switch,
    spending: Spending,
    draining: Draining,
    pruning: Pruning,
    beside: BesideRuns,
    members: Members | None = None,
) -> Operations:
    letters, troubles = NatsDeadLetters(link, most=MOST_LETTERS), NatsTroubles(link, fresh_s=FRESH_S)
    now = NatsTroubles(link, fresh_s=0)

    async def agent() -> Sequence[Finding]:
        return [_of_the_agent(settings, await store.counts()), *_of_company(members), *_of_money(spending)]

    async def nats() -> Sequence[Finding]:
        return [findings.server(link), await findings.jetstream(link), await findings.dead_letters(letters)]

    looks: dict[Part, Look] = {"agent": agent, "gateway": partial(findings.gateway, troubles), "nats": nats}
    return Operations(
        inspection=Inspection(store, store, prompt_of),
        inbox=InboxCalls(store, store.inbox, letters),
        letters=DeadLetterCalls(letters),
        health=HealthCalls(readiness, looks),
        why=WhyCalls(store, store.inbox, NatsWhereabouts(link), letters, skills, now.status, readiness),
        stopping=StoppingCalls(switch),
        draining=DrainCalls(draining),
        pruning=PruneCalls(pruning, beside),
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


def prompt_of(question: Question) -> PromptText:
    """What a model is told with a question. Templates are loaded when first asked for: a script needs none."""
    from agent_service.models.prompts.prompt import as_text

    return as_text(question)
