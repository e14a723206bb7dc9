"""Opens the API, on the bus and over HTTP. Loaded after runs are resumed."""

import asyncio
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from agent_service.admission.spending import SETTING, Spending
from agent_service.api.feed import Feed
from agent_service.api.http import create_app
from agent_service.api.inspection import Inspection, WhyCalls
from agent_service.api.micro import serve_on_bus
from agent_service.api.people import PeopleCalls
from agent_service.api.runs import JournalReader, RunCalls
from agent_service.api.service import OperatorCalls, Part, Probe, ServiceCalls
from agent_service.bootstrap import Agent, prompt_of
from agent_service.bus import health
from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.bus.gateway import GatewayMonitor, callback_flaw, prune_rows
from agent_service.bus.health import observe_bus
from agent_service.bus.reading import locate
from agent_service.bus.topology import ROLE
from agent_service.core.waiting import Status
from agent_service.history.text import ok, warning
from agent_service.settings import AgentSettings
from agent_service.store.database import FILE
from agent_service.store.runs import RunStore
from groundwork.http import serve_http
from groundwork.nats.lease import read_member_leases
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain, in_time
from groundwork.service.program import installed_version
from groundwork.service.store_folder import store_id
from groundwork.telemetry.metrics import Attributes, Instruments
from schemas import subjects
from schemas.status import Finding

UNDER_WAY = (Status.QUEUED, Status.RUNNING, Status.PAUSED)
WITHIN_S = 2.0


async def _caught_up(store: RunStore) -> None:
    """Lets this agent's copy catch up for a while, so that answers are as new as the shared log at the question."""
    with suppress(TryAgain):
        async with in_time("the shared log", WITHIN_S):
            await store.caught_up()


async def open_api(agent: Agent, group: asyncio.TaskGroup, listener: socket.socket, *, http: bool) -> None:
    link, store = agent.ground.link, agent.store
    feed = Feed(store, agent.turns.observers, agent.remote_observers)
    services = tuple(_services(agent, feed))
    fresh = partial(_caught_up, store) if agent.settings.shared else None
    await serve_on_bus(link, services, fresh=fresh)
    if http:
        app = create_app(services, agent.settings, agent.metrics.instruments, fresh=fresh)
        group.create_task(serve_http(app, listener, stopping=feed.end))


def _services(agent: Agent, feed: Feed) -> Iterator[object]:
    link, store, skills, gateway = agent.ground.link, agent.store, agent.skills, GatewayMonitor(agent.ground.link)
    reader, letters = JournalReader(store), NatsDeadLetters(link)
    me = store_id(agent.ground.folder) if agent.settings.shared else None

    async def this_agent() -> Sequence[Finding]:
        of_agent = _of_the_agent(agent.settings, await store.counts())
        return [of_agent, *(await _of_company(link, me)), *_of_money(agent.limits.spending)]

    async def nats() -> Sequence[Finding]:
        return [health.server(link), await health.jetstream(link), await health.dead_letters(letters)]

    probes: dict[Part, Probe] = {"agent": this_agent, "gateway": gateway.findings, "nats": nats}
    outside = skills, gateway.step_trouble, partial(callback_flaw, link)
    yield RunCalls(store, agent.intake, *outside, agent.background, feed.rest, reader)
    yield Inspection(store, reader, agent.folders, prompt_of)
    yield WhyCalls(store, partial(locate, link), letters, skills, partial(gateway.status, 0.0), agent.ready)
    yield PeopleCalls(store, letters)
    stopping = agent.halt_control, agent.signing, agent.draining, agent.pruning
    yield OperatorCalls(*stopping, partial(prune_rows, link))
    yield feed
    yield ServiceCalls(
        settings=agent.settings,
        readiness=agent.ready,
        metrics_text=partial(observe_agent(agent).exposed, subjects.SERVICE_AGENT),
        skills=skills,
        problems=lambda: skills.all_problems,
        probes=probes,
        member=me,
    )


def observe_agent(agent: Agent) -> Instruments:
    """Adds the gauges, which are read on demand."""
    instruments, store, database = agent.metrics.instruments, agent.store, agent.ground.folder / FILE
    spending, kill_switch, outbox = agent.limits.spending, agent.kill_switch, agent.turns.outbox

    async def active() -> Mapping[Attributes, float]:
        runs = await store.counts()
        return {(status.value,): runs[status] for status in UNDER_WAY}

    async def age() -> float:
        queued = await store.queued(1)
        oldest = await store.load(queued[0]) if queued else None
        return (agent.clock.now() - oldest.state.accepted_at).total_seconds() if oldest else 0.0

    async def ready() -> Mapping[Attributes, float]:
        return {(name,): float(not wrong) for name, wrong in (await agent.ready()).items()}

    def size() -> int:
        both = (database, database.with_name(f"{database.name}-wal"))
        return sum(file.stat().st_size for file in both if file.exists())

    for_people = "Runs that wait for a person: paused, or escalated and not dismissed"
    limit = "Limit on the cost of models in a day; absent without one"
    instruments.levels(
        ("agentic.run.active", "Runs that have not ended", "{run}", active, "agentic.run.state"),
        ("agentic.run.queue.age", "Since when the longest queued run waits; 0 if none", "s", age),
        ("agentic.outbox.runs", "Runs with messages that are not published yet", "{run}", lambda: len(outbox.pending)),
        ("agentic.inbox.runs", for_people, "{run}", store.count_for_people),
        ("agentic.store.size", "The store's database, and its log of writes", "By", size),
        ("agentic.store.free", "Free space on its disk", "By", lambda: shutil.disk_usage(database.parent).free),
        ("agentic.spent.today", "Cost of models today (UTC), in USD", "{USD}", lambda: spending.spent_usd),
        ("agentic.spent.limit", limit, "{USD}", lambda: spending.usd_per_day),
        ("agentic.stopped", "1 while everything is stopped, else 0", "", lambda: float(bool(kill_switch.stopped_by))),
        ("agentic.ready", "1 for each dependency that works, else 0", "", ready, "agentic.check"),
    )
    observe_bus(instruments, agent.ground.link, shared=agent.settings.shared)
    return instruments


def _of_the_agent(settings: AgentSettings, counts: Mapping[Status, int]) -> Finding:
    model = settings.model
    thinks = f"{model.provider}: {', '.join(model.names())}" if model.provider != "scripted" else "a script"
    runs = ", ".join(f"{counts[status]} {status}" for status in UNDER_WAY)
    return ok("agent", f"version {installed_version()}, {runs}; decisions by {thinks}")


async def _of_company(link: NatsLink, me: str | None) -> Sequence[Finding]:
    if me is None:
        return ()
    owners = [one.owner for one in await read_member_leases(link, ROLE) if not one.free and one.owner.holder != me]
    others = "; ".join(f"{owner.holder} ({owner})" for owner in owners)
    return (ok("agents", f"this is {me}, {f'beside {others}' if others else 'the only one now'}"),)


def _of_money(spending: Spending) -> Sequence[Finding]:
    if spending.usd_per_day is None:
        return ()
    if why := spending.reached():
        return (
            warning("money", f"no model is asked: {why}", remedy=f"wait for the day to end (UTC), or raise {SETTING}"),
        )
    return (ok("money", f"{spending.spent_usd:.4f} of {spending.usd_per_day:.4f} USD of today are spent"),)
