"""The composition root: puts the agent together from its settings, also as one of several that share a store."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent_service.admission.capacity import Admission, Room
from agent_service.admission.limits import SharedLimits
from agent_service.admission.quotas import Quotas
from agent_service.admission.rate_limits import Pace
from agent_service.admission.shares import ALONE, Company
from agent_service.admission.spending import Spending
from agent_service.api.streams.feed import Feed
from agent_service.archive.dependents import RunBelongings
from agent_service.archive.pruning import Pruning
from agent_service.audit.files import PaperTrail, kept_in_step, written_on_demand
from agent_service.audit.process import Telling, TrailProcess
from agent_service.background import Background
from agent_service.bus.buckets import NatsArtifacts, NatsBoard
from agent_service.bus.catch_up import Missed
from agent_service.bus.endings import head_told
from agent_service.bus.messages import NatsBus, NatsIntake
from agent_service.bus.retention import NatsBesideRuns
from agent_service.bus.skills import ArgumentSchemas, NatsSkills
from agent_service.kill_switch import Brake, Draining, Halting
from agent_service.metrics.runs import AgentMetrics
from agent_service.readiness import readiness
from agent_service.run.child_results import ChildResults
from agent_service.run.evidence import Evidence
from agent_service.run.intake import Intake, NewRuns, Results
from agent_service.run.invalidation import Overtaken
from agent_service.run.model_calls import Thinker
from agent_service.run.moments import Elsewhere, Moment
from agent_service.run.outbox import Publisher
from agent_service.run.ports import Provider
from agent_service.run.recovery import Recovery, Starter
from agent_service.run.turn import OnCommit, Turns
from agent_service.settings import AgentSettings
from agent_service.store.shared_log.store import SharedStore
from agent_service.store.sqlite import SqliteStore
from agent_service.telling import log_lines
from agent_service.trust.artifacts import ProvenArtifacts
from agent_service.trust.capabilities import Capabilities
from agent_service.trust.identity import SystemClock
from agent_service.trust.signing import Signing
from groundwork.nats.leases.members import Members
from groundwork.service.foundations import Ground, SharedGround
from groundwork.service.keys import KeyRing
from groundwork.telemetry.settings import sampler

Trails = Callable[[Path, Path, Telling], TrailProcess]
"""Makes what writes pages and sends traces, from the folder of the store, that of the pages, and how it tells."""
Http = Callable[..., Coroutine[Any, Any, None]]
"""Serves the API, with what `operations.serve_http` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    settings: AgentSettings
    ground: Ground
    store: SqliteStore
    recovery: Recovery
    brake: Brake
    room: Room
    halting: Halting
    draining: Draining
    limits: SharedLimits
    intake: Intake
    receiving: NatsIntake
    missed: Missed
    paper: PaperTrail
    pruning: Pruning
    beside_runs: NatsBesideRuns
    starter: Starter
    turns: Turns
    metrics: AgentMetrics
    feed: Feed
    skills: NatsSkills
    signing: Signing
    thinker: Thinker
    clock: SystemClock

    @property
    def ready(self) -> Callable[[], Awaitable[dict[str, str]]]:
        lease, brake = self.ground.lease, self.brake
        asked = self.receiving, lease, self.ground.link, self.store, self.skills, self.thinker, brake, self.room
        return partial(readiness, *asked)


def build(
    settings: AgentSettings,
    ground: Ground,
    store: SqliteStore,
    keys: KeyRing,
    model: Provider,
    metrics: AgentMetrics,
    open_trails: Trails,
    background: Background,
) -> Agent:
    link, clock, feed, brake = ground.link, SystemClock(), Feed(store), Brake()
    folder, members = ground.folder, ground.members
    capabilities, signing = Capabilities(keys), Signing(keys, folder, progress=settings.shared)
    bus, head = NatsBus(link, signing, shared=settings.shared), partial(head_told, keys, store.head)
    publisher = Publisher(bus, clock, sampler(), capabilities, signing, head, brake)
    artifacts = NatsArtifacts(link)
    proven = ProvenArtifacts(artifacts, store)
    trails = open_trails(folder, _workspaces(settings, folder), _telling(settings, members.me if members else ""))
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

    return Agent(
        settings=settings,
        ground=ground,
        store=store,
        recovery=recovery,
        brake=brake,
        limits=limits,
        room=room,
        halting=Halting(brake, store.halts, NatsBoard(link), turns, store, clock, recovery.try_again),
        intake=intake,
        receiving=receiving,
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
    """Agents on one machine each write to a folder of their own."""
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


def join_in(agent: Agent, background: Background) -> None:
    """Subscribes to the other agents' commits and deaths, if there are any. Called before `agent` begins."""
    store, ground = agent.store, agent.ground
    if not isinstance(store, SharedStore) or not isinstance(ground, SharedGround):
        return
    members, turns, recovery = ground.members, agent.turns, agent.recovery
    overtaken = Overtaken(members.me, turns, agent.thinker, store, recovery, background)
    listeners = overtaken.hear, agent.feed.elsewhere, agent.limits.elsewhere

    def hear(told: Elsewhere) -> None:
        for listener in listeners:
            listener(told)

    def take_over(member: str) -> None:
        recovery.left.set()
        turns.accepted.set()
        background.start(agent.paper.take_over(store, member, agent.clock.now(), partial(members.mine, member)))

    store.on_elsewhere, store.on_halt = hear, agent.halting.hear
    members.gone.append(take_over)
