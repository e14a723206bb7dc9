"""Composition root: builds the agent from its settings, alone or as one of several that share a store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent_service.admission.claims import LocalClaims, SharedClaims
from agent_service.admission.limits import Admission, Capacity, Quotas, SharedLimits
from agent_service.admission.rate_limits import RateLimiter
from agent_service.admission.spending import Spending
from agent_service.archive.pruning import Pruner, RunFiles
from agent_service.background import Background
from agent_service.bus.buckets import NatsArtifactStore, NatsClaimStore, NatsHaltBoard, ProvenArtifacts
from agent_service.bus.messages import NatsIntake
from agent_service.bus.skills import NatsSkills
from agent_service.history import log_line
from agent_service.kill_switch import Draining, HaltControl, KillSwitch
from agent_service.metrics.runs import AgentMetrics
from agent_service.run.children.executor import ChildRuns
from agent_service.run.citations import CitationChecker
from agent_service.run.intake import Intake, NewRuns
from agent_service.run.model_calls import ModelCaller
from agent_service.run.outbox import Publisher
from agent_service.run.ports import ModelProvider, ModelQuestion, PromptText, RemoteCommit
from agent_service.run.recovery import Recovery, Starter
from agent_service.run.turn import Observer, Turns
from agent_service.settings import AgentSettings
from agent_service.store.sqlite import RunStore
from agent_service.trust.identity import SystemClock
from agent_service.trust.proofs import Capabilities, Signing, sealed_head
from agent_service.views.workspace.files import Workspace
from agent_service.views.workspace.rendering import Folders
from groundwork.service.errors import Fatal, TryAgain
from groundwork.service.keys import KeyRing
from groundwork.service.program import loaded
from groundwork.service.startup import ServiceContext
from groundwork.telemetry.settings import sampler
from schemas import subjects
from schemas.values import dataclass

if TYPE_CHECKING:  # loaded only if the settings need it
    from agent_service.cluster import Cluster
    from agent_service.views.spans.sending import Traces


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    settings: AgentSettings
    ground: ServiceContext
    store: RunStore
    recovery: Recovery
    kill_switch: KillSwitch
    capacity: Capacity
    halt_control: HaltControl
    draining: Draining
    limits: SharedLimits
    intake: Intake
    receiving: NatsIntake
    folders: Folders
    traces: "Traces | None"
    """None without a receiver."""
    pruning: Pruner
    starter: Starter
    cluster: "Cluster | None"
    """None for a single agent."""
    turns: Turns
    metrics: AgentMetrics
    remote_observers: list[Callable[[RemoteCommit], object]]
    """Called with every commit of other agents that share the store."""
    skills: NatsSkills
    signing: Signing
    model_caller: ModelCaller
    clock: SystemClock

    async def ready(self) -> dict[str, str]:
        """Problem of each dependency, by name; empty if it works."""
        link = self.ground.link
        return {
            "bus": self.receiving.trouble or self.ground.lease.trouble or link.denied,
            "store": await _wrong_with(self.store.counts()),
            "skills": await _wrong_with(self.skills.catalog()),
            "model": self.model_caller.trouble,
            "halt": self.kill_switch.blocked_by,
            "room": self.capacity.trouble,
        }


async def _wrong_with(question: Awaitable[object]) -> str:
    try:
        await question
    except (TryAgain, Fatal) as error:
        return str(error)
    return ""


def build(
    settings: AgentSettings,
    ground: ServiceContext,
    store: RunStore,
    keys: KeyRing,
    model: ModelProvider,
    metrics: AgentMetrics,
    folders_of: type[Folders],
    background: Background,
) -> Agent:
    link, clock, kill_switch, folder = ground.link, SystemClock(), KillSwitch(), ground.folder
    workspaces = folder / "workspaces" if settings.shared else settings.workspaces
    capabilities, signing = Capabilities(keys), Signing(keys, folder, progress=settings.shared)
    head = partial(sealed_head, keys, store.head)
    publisher = Publisher(link, sampler(), capabilities, signing, head, kill_switch, shared=settings.shared)
    artifacts = NatsArtifactStore(link)
    proven = ProvenArtifacts(artifacts, store)
    folders = folders_of(store, Workspace(workspaces), artifacts, keep=settings.keep_pages)
    traces = _traces(settings, store, workspaces / ".traced")

    limits = _limits(settings, clock, SharedClaims(NatsClaimStore(link)) if settings.shared else LocalClaims())
    told: list[Observer] = [traces.committed] if traces else []
    observers = [*told, folders.committed, log_line.write, metrics.runs.committed, limits.committed]
    model_caller = ModelCaller(
        model, CitationChecker(store, proven), clock, kill_switch, limits, asyncio.Semaphore(settings.turns)
    )
    turns = Turns(store, publisher, model_caller, clock, observers)
    children = ChildRuns(turns, publisher, capabilities, proven, kill_switch, clock)
    turns.settle_children = children.settle
    oversight, own, rules = settings.oversight(), settings.own_tools(), settings.tool_rules
    skills = NatsSkills(
        link,
        allow=rules.only,
        oversight=oversight,
        own=own,
        proven_only=rules.require_capability,
        declared=rules.declared,
    )
    incoming, capacity = metrics.incoming, Capacity(store.counts, max_queued=settings.http.max_queued)
    incoming.listen_to(link)
    admission = Admission(kill_switch=kill_switch, capacity=capacity, quotas=limits.quotas)
    intake = Intake(turns, skills, capabilities, new_runs(settings, model), admission, incoming, clock)
    starter = Starter(intake, store, background, kill_switch, slots=settings.turns)
    recovery = Recovery(turns, children, store, publisher, background, kill_switch, asyncio.Semaphore(settings.turns))

    cluster: Cluster | None = None
    if settings.shared:
        cluster = loaded("agent_service.cluster:Cluster")(store, link, background, turns, intake, recovery)
    receiving = NatsIntake(link, intake, recovery, background, slots=settings.turns, turns=cluster)
    files = RunFiles(workspaces, artifacts, folders.at_rest)
    return Agent(
        settings=settings,
        ground=ground,
        store=store,
        recovery=recovery,
        kill_switch=kill_switch,
        limits=limits,
        capacity=capacity,
        halt_control=HaltControl(kill_switch, store, NatsHaltBoard(link), turns, clock, recovery.try_again),
        intake=intake,
        receiving=receiving,
        draining=Draining(
            kill_switch=kill_switch,
            background=background,
            leave=receiving.leave,
            thinking=lambda: model_caller.under_way,
        ),
        folders=folders,
        traces=traces,
        pruning=Pruner(store, files, settings.keep_runs, settings.limits.reopen_days, clock),
        starter=starter,
        cluster=cluster,
        turns=turns,
        metrics=metrics,
        remote_observers=[limits.remote_commit],
        skills=skills,
        signing=signing,
        model_caller=model_caller,
        clock=clock,
    )


def _limits(settings: AgentSettings, clock: SystemClock, claims: LocalClaims) -> SharedLimits:
    rates, limits = settings.model, settings.limits
    rate_limiter = RateLimiter(
        requests_per_minute=rates.requests_per_minute, tokens_per_minute=rates.tokens_per_minute, claims=claims
    )
    spending = Spending(clock, limits.usd_per_day, settings.quota_of, claims=claims)
    return SharedLimits(rate_limiter, spending, Quotas(clock, spending, settings.quota_of, claims=claims))


def prompt_of(question: ModelQuestion) -> PromptText:
    """Loads the templates on first use."""
    text: PromptText = loaded("agent_service.models.prompts.prompt:as_text")(question)
    return text


def _traces(settings: AgentSettings, store: RunStore, mark: Path) -> "Traces | None":
    receiver = settings.telemetry.receiver()
    if receiver is None:
        return None
    sender = cache(lambda: loaded("groundwork.telemetry.sending:SpanSender")(receiver, subjects.SERVICE_AGENT))
    content, made = (
        prompt_of if settings.telemetry.content else None,
        loaded("agent_service.views.spans.sending:Traces"),
    )
    traces: Traces = made(store, lambda spans: sender().send(spans), mark, keeps=sampler(), content=content)
    return traces


def new_runs(settings: AgentSettings, model: ModelProvider) -> NewRuns:
    verify = settings.verify and model.verifies
    fused, short_rules = settings.phases == "fused", settings.model.prompt == "short"
    return NewRuns(
        policy=settings.policy(), fused=fused, verify=verify, trace_url=settings.trace_url, short_rules=short_rules
    )
