"""Composition root: builds the agent from its settings, alone or as one of several that share a store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent_service.admission.claims import LOCAL, Claims
from agent_service.admission.limits import SharedLimits
from agent_service.admission.rate_limits import RateLimiter
from agent_service.admission.spending import Spending
from agent_service.archive.pruning import Pruner
from agent_service.background import Background
from agent_service.bus.buckets import NatsArtifactStore, NatsClaimStore, ProvenArtifacts, show_halt, shown_halt
from agent_service.bus.messages import NatsIntake
from agent_service.bus.skills import NatsSkills
from agent_service.history import log_line
from agent_service.kill_switch import Draining, HaltControl, KillSwitch
from agent_service.metrics import AgentMetrics
from agent_service.run.children import ChildRuns
from agent_service.run.citations import CitationChecker
from agent_service.run.intake import Intake
from agent_service.run.model_calls import ModelCaller
from agent_service.run.outbox import Publisher
from agent_service.run.ports import ModelProvider, ModelQuestion, PromptText
from agent_service.run.recovery import Recovery
from agent_service.run.turn import Observer, Turns
from agent_service.settings import AgentSettings
from agent_service.store.messages import RemoteCommit
from agent_service.store.runs import RunStore
from agent_service.trust.identity import SystemClock
from agent_service.trust.proofs import Signing
from agent_service.views.workspace.files import Workspace
from agent_service.views.workspace.rendering import Folders
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Fatal, TryAgain
from groundwork.service.keys import KeyRing
from groundwork.service.program import loaded
from groundwork.service.serving import ServiceContext
from groundwork.telemetry.span import sampler
from schemas import subjects

if TYPE_CHECKING:  # loaded only if the settings need it
    from agent_service.cluster import Cluster
    from agent_service.views.spans import Traces


MOST_CALLERS = 1024
"""Quotas that are remembered."""

log = logging.getLogger(__name__)


class Agent:
    """Parts of an agent, each after those that it needs."""

    def __init__(
        self,
        settings: AgentSettings,
        ground: ServiceContext,
        store: RunStore,
        model: ModelProvider,
        folders_of: type[Folders],
        background: Background,
    ) -> None:
        link, shared, slots = ground.link, settings.shared, settings.turns
        workspaces = ground.folder / "workspaces" if shared else settings.workspaces
        self.metrics = metrics = AgentMetrics(settings.model.provider)
        store.database.observe(metrics.store.committed)
        self.settings, self.ground, self.store, self.background = settings, ground, store, background
        self.clock, self.kill_switch = SystemClock(), KillSwitch()
        self.signing = Signing(KeyRing.open(settings.keys_path()), ground.folder, progress=shared)
        self.limits = _limits(settings, self.clock, Claims(NatsClaimStore(link)) if shared else LOCAL)
        artifacts = NatsArtifactStore(link)
        proven = ProvenArtifacts(artifacts, store)
        workspace = Workspace(workspaces)
        self.folders = folders_of(store, workspace, artifacts, keep=settings.keep_pages)
        self.traces = _traces(settings, store, workspaces / ".traced")
        """None without a receiver."""

        traced: list[Observer] = [self.traces.committed] if self.traces else []
        observers = [*traced, self.folders.committed, log_line.write, metrics.committed, self.limits.committed]
        self.remote_observers: list[Callable[[RemoteCommit], object]] = [
            self.limits.remote_commit,
            lambda commit: metrics.forget(commit.run_id),
        ]
        """Called with every commit of other agents that share the store."""
        publisher = Publisher(link, store, self.signing, self.kill_switch, shared=shared)
        checker, calls = CitationChecker(store, proven), asyncio.Semaphore(slots)
        self.model_caller = ModelCaller(model, checker, self.clock, self.kill_switch, self.limits, calls)
        self.turns = Turns(store, publisher, self.model_caller, self.clock, observers)
        children = ChildRuns(self.turns, proven)
        self.skills = NatsSkills(link, settings)
        granted = settings.for_model(verifies=model.verifies)
        self.intake = Intake(self.turns, self.skills, granted, metrics.incoming)
        self.recovery = Recovery(self.intake, children, background, slots)
        self._open_bus(link, workspace, artifacts)

    def _open_bus(self, link: NatsLink, workspace: Workspace, artifacts: NatsArtifactStore) -> None:
        settings, store = self.settings, self.store
        board = partial(show_halt, link), partial(shown_halt, link)
        go_on = self.recovery.go_on
        self.halt_control = HaltControl(self.kill_switch, store, *board, self.turns.take, self.clock, go_on)
        self.cluster: Cluster | None = None
        """None for a single agent."""
        if settings.shared:
            self.cluster = loaded("agent_service.cluster:Cluster")(self, store)
        link.repeats = self.metrics.incoming
        turns = self.cluster.receive if self.cluster else None
        self.receiving = NatsIntake(link, self.recovery, turns=turns)
        self.draining = Draining(
            kill_switch=self.kill_switch,
            background=self.background,
            leave=self.receiving.leave,
            thinking=lambda: self.model_caller.under_way,
        )
        rules = settings.keep_runs, settings.limits.reopen_days
        self.pruning = Pruner(store, workspace, artifacts, *rules, self.clock, self.folders.at_rest)

    async def ready(self) -> dict[str, str]:
        """Problem of each dependency, by name; empty if it works."""
        link = self.ground.link
        return {
            "bus": self.receiving.trouble or self.ground.lease.trouble or link.denied,
            "store": await _wrong_with(self.store.counts()),
            "skills": await _wrong_with(self.skills.catalog()),
            "model": self.model_caller.trouble,
            "halt": self.kill_switch.blocked_by,
            "room": self.intake.capacity.trouble,
        }


async def _wrong_with(question: Awaitable[object]) -> str:
    try:
        await question
    except (TryAgain, Fatal) as error:
        return str(error)
    return ""


def _limits(settings: AgentSettings, clock: SystemClock, claims: Claims) -> SharedLimits:
    rates, quota_of = settings.model, lru_cache(MOST_CALLERS)(settings.quota_of)
    rate_limiter = RateLimiter(
        requests_per_minute=rates.requests_per_minute, tokens_per_minute=rates.tokens_per_minute, claims=claims
    )
    return SharedLimits(Spending(clock, settings.limits.usd_per_day, quota_of, claims), rate_limiter)


def prompt_of(question: ModelQuestion) -> PromptText:
    """Loads the templates on first use."""
    text: PromptText = loaded("agent_service.models.prompts.prompt:as_text")(question)
    return text


def _traces(settings: AgentSettings, store: RunStore, mark: Path) -> "Traces | None":
    send = settings.telemetry.sender(subjects.SERVICE_AGENT)
    if send is None:
        return None
    content = prompt_of if settings.telemetry.content else None
    made = loaded("agent_service.views.spans:Traces")
    traces: Traces = made(store, send, mark, keeps=sampler(), content=content)
    return traces
