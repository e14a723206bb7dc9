"""An agent behind its API, with a real store and the real intake.

Nothing is sent: an accepted run rests, the bus is empty, and no gateway answers.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx2
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import SecretStr
from starlette.types import ASGIApp

from agent_service.admission.limits import SharedLimits
from agent_service.admission.spending import Spending
from agent_service.api.feed import Feed
from agent_service.api.http import create_app
from agent_service.api.inspection import Inspection, WhyCalls
from agent_service.api.people import PeopleCalls
from agent_service.api.requests import MAX_BODY_BYTES
from agent_service.api.runs import JournalReader, RunCalls
from agent_service.api.service import OperatorCalls, ServiceCalls
from agent_service.archive.pruning import Pruner
from agent_service.archive.retention import KeepRunsSettings
from agent_service.background import Background
from agent_service.core.state import RunState
from agent_service.errors import ModelError
from agent_service.history import log_line
from agent_service.kill_switch import Draining, HaltControl, KillSwitch
from agent_service.metrics import IncomingMetrics
from agent_service.models.prompts.prompt import as_text
from agent_service.run.citations import CitationChecker
from agent_service.run.intake import Intake
from agent_service.run.journal import Commit, Run
from agent_service.run.model_calls import ModelCaller
from agent_service.run.outbox import Publisher
from agent_service.run.ports import ModelCall, ModelQuestion
from agent_service.run.turn import Turns
from agent_service.settings import AgentSettings, ApiSettings, TokenSettings
from agent_service.store.runs import RunStore
from agent_service.trust.proofs import Signing
from agent_service.views.why import MessageLocation
from agent_service.views.workspace.files import Workspace
from agent_service.views.workspace.rendering import Folders
from groundwork.http import BoundedProtocol, HttpServer
from groundwork.service.errors import TryAgain
from groundwork.service.keys import KeyRing
from groundwork.telemetry.metrics import Instruments
from schemas.catalog import Catalog
from schemas.operations import Scope
from schemas.status import GatewayPruned, GatewayStatus
from tests.core.script import commits_of
from tests.kit.fakes import FakeClock, MemoryArtifacts, MemoryLetters
from tests.kit.runs import DIGEST, run_id
from tests.projections.fakes import Shelf
from tests.projections.people import a_run_that_asks, a_run_that_needs_approval

HOST = "127.0.0.1:8700"
TOKENS: Mapping[str, frozenset[Scope]] = {
    "waker": frozenset({"wake"}),
    "reader": frozenset({"read"}),
    "controller": frozenset({"control"}),
    "operator": frozenset({"operate"}),
    "admin": frozenset({"wake", "read", "control", "operate"}),
}


class Outside:
    """Dependencies of the agent: a silent bus, an unavailable model, no gateway and no executor.

    `refused` has callback addresses with their flaws.
    """

    is_free = False

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}

    async def flaw(self, url: str) -> str:
        return self.refused.get(url, "")

    async def publish(self, *_: object, **__: object) -> None: ...

    async def send(self, *_: object, **__: object) -> None: ...

    def prepare(self, question: ModelQuestion) -> ModelCall:
        raise ModelError("try_again", "unavailable", f"nobody thinks here about call {question.call}", 3600.0)

    async def catalog(self) -> Catalog:
        raise TryAgain("the gateway is away")

    def present(self) -> frozenset[str]:
        return frozenset()

    async def step_trouble(self, executor: str, *, run_id: str, step: int) -> str:  # noqa: ARG002 - it has no troubles
        return ""

    async def prune(self, *, dry_run: bool) -> GatewayPruned:
        return GatewayPruned(rows={}, dry_run=dry_run, trouble="no gateway answers")


class MoodyArchive:
    """A store that can be unavailable, or show a run as it was until its commit returns."""

    def __init__(self, archive: RunStore) -> None:
        self.away = False
        self.before: Run | None = None
        self._archive = archive

    async def load(self, run_id: str, version: int = 0) -> Run | None:
        is_before = self.before and self.before.state.version >= version
        return self.before if is_before else await self.__getattr__("load")(run_id)

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise TryAgain("the archive is away", delay_s=7.4)
        return getattr(self._archive, name)


class Nowhere:
    """A bus without messages; records the questions."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def locate(self, stream: str, subject: str, key: str, since: datetime) -> MessageLocation | None:
        del since
        self.asked.append((stream, subject, key))
        return None


@dataclass(slots=True)
class House:
    """`wrong` holds the troubles that /readyz finds."""

    app: FastAPI
    services: tuple[object, ...]
    store: RunStore
    archive: MoodyArchive
    feed: Feed
    clock: FakeClock
    workspace: Workspace
    shelf: Shelf
    outside: Outside
    letters: MemoryLetters
    wrong: dict[str, str] = field(default_factory=dict)

    @property
    def followers(self) -> int:
        return sum(channel.followers for channel in self.feed._channels.values())

    def client(self, who: str | None = "admin", **more: Any) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=bearer(who), **more)

    def table(self) -> dict[tuple[str, str], APIRoute]:
        routes = [route for route in self.app.routes if isinstance(route, APIRoute)]
        assert len(routes) == len(self.app.routes) - 2, "a route that is no call, nor the page"
        return {(method, route.path): route for route in routes for method in route.methods or ()}

    async def play(self, commits: Sequence[Commit]) -> str:
        """Commits the events here; returns the run id."""
        for commit in commits:
            await self.elsewhere([commit])
            self.feed.announce(commit)
        return commits[0].entry.run_id

    async def elsewhere(self, commits: Sequence[Commit]) -> None:
        """Commits in another process, which this one is not told of."""
        for commit in commits:
            await (self.store.commit(commit) if commit.entry.seq > 1 else self.store.accept(commit, DIGEST))

    async def state(self, run_id: str) -> RunState:
        run = await self.store.load(run_id)
        assert run is not None
        return run.state

    async def two_days_later(self, run_id: str) -> None:
        """An instant after all work of the run."""
        self.store.mark_dispatched(run_id, self.store.version(run_id))
        self.store._write_dispatched()
        await self.store.database.write(lambda _: None)
        self.clock.advance(2 * 86400)

    async def how_many(self) -> int:
        return len(await self.store.runs(limit=1000))


def bearer(who: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret(who)}"} if who else {}


def known_token(name: str) -> TokenSettings:
    return TokenSettings(name=name, scopes=TOKENS[name], token=SecretStr(secret(name)))


async def no_metrics() -> bytes:
    return b""


async def no_gateway() -> GatewayStatus | None:
    return None


def service_calls(readiness: Any, **more: Any) -> ServiceCalls:
    about: dict[str, Any] = {
        "settings": AgentSettings(),
        "metrics_text": no_metrics,
        "problems": tuple,
        "probes": {},
        "member": None,
    }
    return ServiceCalls(readiness=readiness, **about | more)


def secret(who: str) -> str:
    return f"secret-of-the-{who}"


@contextlib.asynccontextmanager
async def open_house(
    folder: Path, *, tokens: tuple[TokenSettings, ...] | None = None, max_queued: int = 1000
) -> AsyncIterator[House]:
    """The whole agent; `tokens` default to TOKENS."""
    async with RunStore.open(folder / "store") as store, asyncio.TaskGroup() as group:
        clock, kill_switch, outside = FakeClock(), KillSwitch(), Outside()
        archive: Any = MoodyArchive(store)
        feed = Feed(archive, poll_s=0.05)
        known = tuple(map(known_token, TOKENS)) if tokens is None else tokens
        own: dict[str, Any] = {"limits": {"max_context_bytes": MAX_BODY_BYTES}, "trace_url": "http://traces/{trace_id}"}
        settings = AgentSettings(http=ApiSettings(tokens=known, max_queued=max_queued), **own)
        limits = SharedLimits(Spending(clock, quota_of=settings.quota_of))
        evidence, slots = CitationChecker(archive, MemoryArtifacts()), asyncio.Semaphore(4)
        model_caller = ModelCaller(outside, evidence, clock, kill_switch, limits, slots)

        await limits.recall(store)
        signing = Signing(KeyRing.fresh(), folder / "store")
        publisher = Publisher(outside, store, signing, kill_switch)
        turns = Turns(store, publisher, model_caller, clock, [log_line.write, feed.announce, limits.quotas.committed])
        board = AsyncMock(return_value=None)
        halt_control = HaltControl(kill_switch, store, board, board, turns.take, clock, lambda: None)
        instruments = Instruments()
        intake = Intake(turns, outside, settings.for_model(verifies=False), IncomingMetrics(instruments))
        workspace, shelf = Workspace(folder / "workspaces"), Shelf({})
        folders = Folders(archive, workspace, shelf, keep=25)
        wrong: dict[str, str] = {}

        async def readiness() -> Mapping[str, str]:
            return {"bus": "", "store": "", "skills": "", "halt": kill_switch.blocked_by} | wrong

        letters, reader = MemoryLetters(), JournalReader(archive)
        leaving: dict[str, Any] = {"leave": lambda _: asyncio.sleep(0), "thinking": lambda: 0, "end": lambda: None}
        draining = Draining(kill_switch=kill_switch, background=Background(group), **leaving)
        rules = KeepRunsSettings(done_days=1, cancelled_days=1)
        pruning = Pruner(store, workspace, MemoryArtifacts(), rules, 7.0, clock)
        metrics = partial(instruments.exposed, "agentic-loop")
        asking = outside.step_trouble, outside.flaw, Background(group), feed.rest
        services = (
            RunCalls(archive, intake, outside, *asking, reader),
            Inspection(store, reader, folders, as_text),
            WhyCalls(store, Nowhere().locate, letters, outside, no_gateway, readiness),
            PeopleCalls(store, letters, now=clock.now),
            OperatorCalls(halt_control, signing, draining, pruning, outside.prune),
            feed,
            service_calls(readiness, settings=settings, metrics_text=metrics, skills=outside),
        )
        app = create_app(services, settings, instruments)
        inside = clock, workspace, shelf, outside, letters
        yield House(app, services, store, archive, feed, *inside, wrong)


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, *, send_buffer: int | None = None, protocol: type[BoundedProtocol] = BoundedProtocol
) -> AsyncIterator[int]:
    """A real server on a free port, as the agent runs it. `send_buffer`: bytes of the kernel's buffer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if send_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        server = HttpServer(app, protocol)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.leave()
            await task


def with_a_letter(number: int = 1) -> Sequence[Commit]:
    return commits_of(a_run_that_needs_approval(run_id(number)))


def with_a_question(number: int = 1) -> Sequence[Commit]:
    return commits_of(a_run_that_asks(run_id(number)))
