"""The composition root: puts the agent together from its settings."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent_service.api.feed import Feed
from agent_service.background import Background
from agent_service.belongings import RunBelongings
from agent_service.brake import Brake
from agent_service.bus.argument_schemas import ArgumentSchemas
from agent_service.bus.artifacts import NatsArtifacts
from agent_service.bus.beside_runs import NatsBesideRuns
from agent_service.bus.ends import head_told
from agent_service.bus.gateway import NatsCallbacks, NatsTroubles
from agent_service.bus.halts import NatsBoard
from agent_service.bus.messages import NatsBus, NatsIntake
from agent_service.bus.missed import Missed
from agent_service.bus.skills import NatsSkills
from agent_service.capabilities import Capabilities
from agent_service.child_results import ChildResults
from agent_service.draining import Draining
from agent_service.evidence import Evidence
from agent_service.halting import Halting
from agent_service.identity import SystemClock
from agent_service.intake import Intake, NewRuns, Results
from agent_service.metrics.agent import AgentMetrics
from agent_service.moments import Moment
from agent_service.pace import Pace
from agent_service.paper_trail import PaperTrail, kept_in_step, written_on_demand
from agent_service.ports import Provider
from agent_service.proven_artifacts import ProvenArtifacts
from agent_service.pruning import Pruning
from agent_service.publisher import Publisher
from agent_service.quotas import Quotas
from agent_service.readiness import readiness
from agent_service.recovery import Recovery, Starter
from agent_service.room import Admission, Room
from agent_service.settings import AgentSettings
from agent_service.shared_limits import SharedLimits
from agent_service.shares import ALONE, Company
from agent_service.signing import Signing
from agent_service.spending import Spending
from agent_service.store.sqlite import SqliteStore
from agent_service.telling import log_lines
from agent_service.thinker import Thinker
from agent_service.trail_process import Telling, TrailProcess
from agent_service.turn import OnCommit, Turns
from groundwork.nats.members import Members
from groundwork.service.foundations import Ground
from groundwork.service.key_ring import KeyRing
from groundwork.telemetry.sampling import sampler
from schemas.argument_schemas import schema_flaw

if TYPE_CHECKING:
    from agent_service.api.desk import Desk


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The parts that the root starts and that tests look at."""

    settings: AgentSettings
    ground: Ground
    store: SqliteStore
    recovery: Recovery
    brake: Brake
    room: Room
    halting: Halting
    draining: Draining
    limits: SharedLimits
    intake: NatsIntake
    missed: Missed
    paper: PaperTrail
    pruning: Pruning
    beside_runs: NatsBesideRuns
    starter: Starter
    turns: Turns
    metrics: AgentMetrics
    desk: "Callable[[], Desk]"
    """Made when callers are let in: what it shows takes time to load."""
    feed: Feed
    skills: NatsSkills
    signing: Signing
    thinker: Thinker
    clock: SystemClock

    @property
    def ready(self) -> Callable[[], Awaitable[dict[str, str]]]:
        lease, brake = self.ground.lease, self.brake
        asked = self.intake, lease, self.ground.link, self.store, self.skills, self.thinker, brake, self.room
        return partial(readiness, *asked)


def build(
    settings: AgentSettings,
    ground: Ground,
    store: SqliteStore,
    keys: KeyRing,
    model: Provider,
    metrics: AgentMetrics,
    background: Background,
) -> Agent:
    link, clock, feed, brake = ground.link, SystemClock(), Feed(store), Brake()
    folder, members = ground.folder, ground.members
    capabilities, signing = Capabilities(keys), Signing(keys, folder, progress=settings.shared)
    bus, head = NatsBus(link, signing, shared=settings.shared), partial(head_told, keys, store.head)
    publisher = Publisher(bus, clock, sampler(), capabilities, signing, head, brake)
    artifacts = NatsArtifacts(link)
    proven = ProvenArtifacts(artifacts, store)
    trails = TrailProcess(folder, _workspaces(settings, folder), _telling(settings, members.me if members else ""))
    paper = _paper(settings, folder, trails, store, artifacts)

    limits = _limits(settings, clock, members)
    committed = _committed(paper, feed, metrics, limits)
    evidence = Evidence(store, proven)
    thinker = Thinker(model, ArgumentSchemas(), evidence, clock, brake, limits, slots=settings.turns)
    turns = Turns(store, publisher, thinker, clock, committed, brake)
    oversight, own, rules = settings.oversight(), settings.own_tools(), settings.tool_rules
    skills = NatsSkills(
        link,
        allow=rules.only,
        schema_flaw=schema_flaw,
        oversight=oversight,
        own=own,
        proven=rules.require_capability,
        declared=rules.declared,
    )
    incoming = metrics.incoming
    room = Room(store.counts, max_queued=settings.http.max_queued)
    metrics.outgoing.listen_to(link)
    intake = Intake(
        turns,
        skills,
        Results(capabilities=capabilities, children=ChildResults(store, proven)),
        _new_runs(settings, model),
        Admission(brake=brake, room=room, quotas=limits.quotas),
        incoming,
        clock,
    )
    starter = Starter(intake, store, background, brake, slots=settings.turns)
    recovery = Recovery(turns, store, store, publisher, background, brake, slots=settings.turns)

    receiving = NatsIntake(
        link,
        intake,
        background,
        incoming,
        slots=settings.turns,
        on_span=trails.leaf if trails.sends else None,
        shared=settings.shared,
    )

    belongings = RunBelongings(_workspaces(settings, folder), artifacts, paper.projector.at_rest)

    def desk() -> "Desk":
        from agent_service.api.desk import Desk, Executors

        executors = Executors(skills=skills, troubles=NatsTroubles(link), callbacks=NatsCallbacks(link))
        return Desk(store, store, store.inbox, intake, executors, background)

    return Agent(
        settings=settings,
        ground=ground,
        store=store,
        recovery=recovery,
        brake=brake,
        limits=limits,
        room=room,
        halting=Halting(brake, store.halts, NatsBoard(link), turns, store, clock, recovery.try_again),
        intake=receiving,
        draining=Draining(
            brake=brake, background=background, leave=receiving.leave, thinking=lambda: thinker.under_way
        ),
        missed=Missed(link, intake, folder, slots=settings.turns),
        paper=paper,
        pruning=Pruning(store.forgetting, belongings, settings.retention(), clock),
        beside_runs=NatsBesideRuns(link, settings.keep_runs.letters(), clock),
        starter=starter,
        turns=turns,
        metrics=metrics,
        desk=desk,
        feed=feed,
        skills=skills,
        signing=signing,
        thinker=thinker,
        clock=clock,
    )


def _limits(settings: AgentSettings, clock: SystemClock, members: Members | None) -> SharedLimits:
    rates, limits = settings.model, settings.limits
    company = _company(members) if members else ALONE
    pace = Pace(
        requests_per_minute=rates.requests_per_minute, tokens_per_minute=rates.tokens_per_minute, company=company
    )
    spending = Spending(
        clock, limits.usd_per_day, lambda caller: settings.quota_of(caller).usd_per_day, company=company
    )
    return SharedLimits(pace, spending, Quotas(clock, spending, settings.quota_of, company=company))


def _company(members: Members) -> Company:
    return Company(members=lambda: len(members.live), rank=lambda: sorted(members.live).index(members.me))


def _workspaces(settings: AgentSettings, folder: Path) -> Path:
    """Of several agents on one machine each writes what it is asked for in a place of its own."""
    return folder / "workspaces" if settings.shared else settings.workspaces


def _paper(
    settings: AgentSettings, folder: Path, trails: TrailProcess, store: SqliteStore, artifacts: NatsArtifacts
) -> PaperTrail:
    workspaces = _workspaces(settings, folder)
    if settings.shared:
        return written_on_demand(trails, workspaces, folder, store, artifacts)
    return kept_in_step(trails, workspaces, store, artifacts)


def _committed(paper: PaperTrail, feed: Feed, metrics: AgentMetrics, limits: SharedLimits) -> OnCommit:

    def committed(moment: Moment) -> None:
        paper.committed(moment)
        log_lines.write(moment)
        feed.tell(moment)
        metrics.runs.committed(moment)
        limits.committed(moment)

    return committed


def _new_runs(settings: AgentSettings, model: Provider) -> NewRuns:
    verify = settings.verify and model.verifies
    fused = settings.phases == "fused"
    return NewRuns(policy=settings.policy(), fused=fused, verify=verify, trace_url=settings.trace_url)


def _telling(settings: AgentSettings, member: str) -> Telling:
    telemetry, logs = settings.telemetry, settings.log
    return Telling(
        receiver=telemetry.receiver("traces"),
        content=telemetry.content,
        log_level=logs.level,
        log_format=logs.format,
        redact=settings.secrets(),
        member=member,
        keep_pages=settings.keep_pages,
    )
