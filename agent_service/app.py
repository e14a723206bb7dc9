"""The composition root: builds the agent from its settings, runs it, and takes it down again.

Everything that goes on belongs to one task group. Stop order: no new messages and requests, then what is in hand, then
the paper trail, the store and the bus.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from agent_service.api.feed import Feed
from agent_service.api.runs import Runs
from agent_service.background import Background
from agent_service.bus.argument_schemas import ArgumentSchemas, schema_flaw
from agent_service.bus.artifacts import NatsArtifacts
from agent_service.bus.gateway import NatsCallbacks, NatsTroubles
from agent_service.bus.messages import NatsBus, NatsIntake
from agent_service.bus.missed import Missed
from agent_service.bus.skills import NatsSkills
from agent_service.clock import SystemClock
from agent_service.core.waiting import Status
from agent_service.errors import Fatal, TryAgain
from agent_service.foundations import Foundations, laid
from agent_service.intake import COUNTED, Intake
from agent_service.journal import Commit
from agent_service.models.opening import open_model
from agent_service.pace import Pace
from agent_service.ports import Model
from agent_service.publisher import Publisher
from agent_service.recovery import FORGETTABLE, Recovery
from agent_service.settings import AgentSettings
from agent_service.starter import Starter
from agent_service.store.owned import OwnedStore
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.folder.projector import Projector
from agent_service.telling.folder.run_files import RunFiles
from agent_service.telling.folder.workspace import Workspace
from agent_service.thinker import Thinker
from agent_service.trail_process import TrailProcess
from agent_service.turn import Turns
from groundwork.nats.keeping_informed import keep_informed
from groundwork.nats.lease import Lease
from groundwork.nats.link import NatsLink
from groundwork.service.counts import Counts
from schemas import subjects

HEAD_START_S = 0.5
INFORMED = (subjects.STREAM, subjects.STREAM_REQUESTS)
"""The streams that are watched for what they forget."""
"""How long runs that are under way have the processor for themselves, unless one has got on, before callers come in."""
UNDER_WAY = (Status.QUEUED, Status.RUNNING)
OF_THE_BUS = {
    "ids_taken_by_others": "Message ids of ours that somebody else's message had",
    "messages_rejected": "Messages that became dead letters",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The parts that the root starts and that tests look at."""

    settings: AgentSettings
    link: NatsLink
    lease: Lease
    store: SqliteStore
    recovery: Recovery
    intake: NatsIntake
    missed: Missed
    projector: Projector
    trails: TrailProcess
    bus: NatsBus
    starter: Starter
    counts: Counts
    runs: Runs
    skills: NatsSkills
    thinker: Thinker
    workspace: Workspace
    files: RunFiles
    clock: SystemClock


async def serve(settings: AgentSettings, *, take_over: bool = False) -> None:
    """Run the agent until SIGTERM or SIGINT. Raises Fatal when it cannot start, or not go on, like this.

    `take_over` makes the agent end that owns the bus now, and waits for what that one leaves.
    """
    stop = asyncio.Event()
    with _on_signals(stop):
        async with laid(settings, take_over=take_over) as ground, open_model(settings.model) as model:
            try:
                async with asyncio.TaskGroup() as group:
                    agent = build(settings, ground, model, Background(group))
                    await _start(agent, group, ground.listener)
                    await _until(stop)
            except* _Stopped:
                log.info("stopping")
            await agent.projector.flush()
            agent.trails.close()


def build(settings: AgentSettings, ground: Foundations, model: Model, background: Background) -> Agent:
    """Put the agent together. Nothing runs yet."""
    link, store = ground.link, ground.store
    clock, feed, bus = SystemClock(), Feed(), NatsBus(link)
    publisher = Publisher(bus, clock)
    workspace, artifacts = Workspace(settings.workspaces), NatsArtifacts(link)
    trails = TrailProcess(settings.store, settings.workspaces)
    projector = Projector(trails, workspace, artifacts, on_damage=store.quarantine)

    def committed(commit: Commit) -> None:
        feed.tell(commit.state.run_id)
        projector.moved(commit.state.run_id, ended=commit.state.final)

    rates = settings.model
    pace = Pace(requests_per_minute=rates.requests_per_minute, tokens_per_minute=rates.tokens_per_minute)
    thinker = Thinker(model, ArgumentSchemas(), clock, slots=settings.turns, pace=pace)
    turns = Turns(OwnedStore(store, ground.lease.held), publisher, thinker, clock, committed)
    skills = NatsSkills(link, allow=settings.tools, schema_flaw=schema_flaw)
    policy, counts = settings.limits.policy(), Counts(COUNTED | OF_THE_BUS)
    fused, trace_url = settings.phases == "fused", settings.trace_url
    intake = Intake(turns, skills, clock, policy=policy, fused=fused, counts=counts, trace_url=trace_url)
    starter = Starter(intake.begin, store, background, slots=settings.turns)
    return Agent(
        settings=settings,
        link=link,
        lease=ground.lease,
        store=store,
        recovery=Recovery(turns, store, store, publisher, background, slots=settings.turns),
        intake=NatsIntake(link, intake, background, slots=settings.turns),
        missed=Missed(link, intake, settings.store, slots=settings.turns),
        projector=projector,
        trails=trails,
        bus=bus,
        starter=starter,
        counts=counts,
        runs=Runs(
            store,
            store,
            intake,
            skills,
            NatsTroubles(link),
            NatsCallbacks(link),
            feed,
            background,
            accepted=starter.nudge,
            max_queued=settings.http.max_queued,
        ),
        skills=skills,
        thinker=thinker,
        workspace=workspace,
        files=RunFiles(workspace, store, artifacts),
        clock=clock,
    )


async def readiness(agent: Agent) -> dict[str, str]:
    """What is wrong with each thing the agent needs; empty texts when all is well."""
    return {
        "bus": agent.intake.trouble or agent.lease.trouble,
        "store": await _wrong_with(agent.store.counts()),
        "skills": await _wrong_with(agent.skills.catalog()),
        "model": agent.thinker.trouble,
    }


def metrics(agent: Agent) -> str:
    """What is counted, in the Prometheus text format."""
    agent.counts.take_over("ids_taken_by_others", agent.link.ids_taken)
    agent.counts.take_over("messages_rejected", agent.intake.rejected)
    return agent.counts.exposed("agentic")


async def _wrong_with(question: Awaitable[object]) -> str:
    try:
        await question
    except (TryAgain, Fatal) as error:
        return str(error)
    return ""


class _Stopped(Exception):
    """Somebody asked the agent to stop."""


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _Stopped


async def _start(agent: Agent, group: asyncio.TaskGroup, listener: socket.socket) -> None:
    """First what was left goes on and what waits is taken up; then what can wait for that."""
    moments = chain([agent.clock.now()], iter(agent.clock.now, None))  # when the bus may have forgotten, from now on
    left = await agent.recovery.resume_all()
    for work in (
        _wrong_with(agent.skills.catalog()),  # asked for at once: runs that are to begin wait for it
        agent.intake.run(),
        agent.starter.run(),
        _keep_time(agent),
        agent.recovery.keep_trying(),
        agent.link.until_lost(),
    ):
        group.create_task(work)
    runs = await agent.store.counts()
    if any(runs[status] for status in UNDER_WAY):
        with suppress(TimeoutError):
            async with asyncio.timeout(HEAD_START_S):
                await agent.bus.spoken.wait()
    await _let_callers_in(agent, group, listener)
    behind_since = agent.workspace.caught_up_at() or agent.clock.now()
    agent.projector.catch_up(await agent.store.unsettled(behind_since - FORGETTABLE))
    inform = keep_informed(agent.link, INFORMED, lambda: _inform_bus(agent, next(moments)))
    for work in (agent.projector.run(), inform):
        group.create_task(work)
    host, port = listener.getsockname()[:2]
    facts = {"http": f"http://{host}:{port}", "resumed": left, "nats": agent.link.servers, "epoch": agent.lease.epoch}
    log.info("ready", extra=facts)


async def _keep_time(agent: Agent) -> None:
    """From when on is heard what was missed: a result may be there for a run whose time is over since."""
    if agent.missed.any:
        await agent.missed.hear(await agent.recovery.waiting_since(agent.clock.now()) - FORGETTABLE)
    await agent.recovery.keep_time(agent.clock)


async def _inform_bus(agent: Agent, forgotten_at: datetime) -> bool:
    """Say again what the bus may have forgotten; False if it could not be said."""
    try:
        said = await agent.recovery.say_again(forgotten_at, agent.clock.now())
    except TryAgain as error:
        log.warning("the bus is not informed yet", extra={"why": str(error)})
        return False
    log.info("the bus is informed", extra={"runs": said})
    return True


async def _let_callers_in(agent: Agent, group: asyncio.TaskGroup, listener: socket.socket) -> None:
    """First by the bus, where a gateway asks whether runs go on; then by HTTP, which takes a third of a second to load:
    at the top of this file it would hold up what a crash interrupted."""
    from agent_service.api.micro_service import serve_on_bus

    await serve_on_bus(agent.link, agent.runs, trace_url=agent.settings.trace_url)
    from agent_service.api.calls import create_app
    from agent_service.api.server import http_server

    http = create_app(agent.runs, agent.files, lambda: readiness(agent), agent.settings, metrics=lambda: metrics(agent))
    group.create_task(http_server(http).serve(sockets=[listener]), name="http")


@contextmanager
def _on_signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
