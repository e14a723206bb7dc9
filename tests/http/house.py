"""An agent behind its API: a real store and the real desk; the bus only remembers, so that an accepted run rests."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import SecretStr
from starlette.types import ASGIApp

from agent_service.admission.callers import HttpSettings, Scope, TokenSettings
from agent_service.admission.capacity import Admission, Room
from agent_service.admission.limits import SharedLimits
from agent_service.admission.quotas import Quotas
from agent_service.admission.rate_limits import Pace
from agent_service.admission.spending import Spending
from agent_service.api.app import Operations, create_app
from agent_service.api.desk import Desk, Executors, Switch
from agent_service.api.requests import MAX_BODY_BYTES
from agent_service.api.streams.events import EventStreams
from agent_service.api.streams.feed import Feed
from agent_service.archive.dependents import RunBelongings
from agent_service.archive.pruning import Pruning
from agent_service.archive.retention import Rules
from agent_service.background import Background
from agent_service.core.brief import Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.errors import ModelError
from agent_service.kill_switch import Brake, Draining, Halting
from agent_service.metrics.wakes import IncomingMetrics
from agent_service.run.child_results import ChildResults
from agent_service.run.evidence import Evidence
from agent_service.run.intake import Intake, NewRuns, Results
from agent_service.run.journal import Commit, Entry
from agent_service.run.lines import EVERY_RUN, RunLine, Wanted
from agent_service.run.model_calls import Thinker
from agent_service.run.moments import Elsewhere, Moment, tell
from agent_service.run.outbox import Publisher
from agent_service.run.ports import Archive, ModelCall, Place, Question
from agent_service.run.turn import Turns
from agent_service.settings import AgentSettings
from agent_service.store.sqlite import SqliteStore
from agent_service.telling import log_lines
from agent_service.telling.folder.run_files import RunFiles
from agent_service.telling.folder.workspace import Workspace
from agent_service.trust.capabilities import Capabilities
from agent_service.trust.signing import Signing
from groundwork.http.protocol import BoundedProtocol
from groundwork.service.errors import TryAgain
from groundwork.service.keys import KeyRing
from groundwork.telemetry.metrics import Instruments, exposition
from schemas.catalog import Catalog
from tests.http.operators import operators
from tests.kit.fakes import FakeClock, MemoryArtifacts, MemoryBoard
from tests.kit.letterbox import Letterbox
from tests.kit.runs import NOON, wake_of
from tests.projections.fakes import Shelf

HOST = "127.0.0.1:8700"
A_DAY = timedelta(days=1)
TOKENS: Mapping[str, frozenset[Scope]] = {
    "waker": frozenset({"wake"}),
    "reader": frozenset({"read"}),
    "controller": frozenset({"control"}),
    "operator": frozenset({"operate"}),
    "admin": frozenset({"wake", "read", "control", "operate"}),
}


class SilentBus:
    """Fills the port Bus."""

    def __init__(self) -> None:
        self.published: list[str] = []
        self.told: list[str] = []

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        del subject, body, headers
        self.published.append(key)

    async def tell(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        del subject, body, headers
        self.told.append(key)


class _NoModel:
    """Away for a while, whatever it is asked."""

    def prepare(self, question: Question) -> ModelCall:
        raise ModelError("try_again", "unavailable", f"nobody thinks here about call {question.call}", 3600.0)


class _NoSchemas:
    def flaws(self, *_: object) -> tuple[str, ...]:
        return ()


class _NoSkills:
    async def catalog(self) -> Catalog:
        raise TryAgain("the gateway is away")

    def present(self) -> frozenset[str]:
        return frozenset()


class _NoTroubles:
    async def of(self, executor: str, *, run_id: str, step: int) -> str:
        del executor, run_id, step
        return ""


class Picky:
    """Fills Callbacks: nothing is ever sent to the places in `refused`."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}

    async def flaw(self, url: str) -> str:
        return self.refused.get(url, "")


class MoodyArchive:
    """The store's archive, which can be away. Fills the port Archive."""

    def __init__(self, archive: Archive) -> None:
        self.away = False
        self._archive = archive

    @property
    def _there(self) -> Archive:
        if self.away:
            raise TryAgain("the archive is away", delay_s=7.4)
        return self._archive

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        return await self._there.entries(run_id, after, limit)

    async def signals(self, run_id: str, signal_id: str) -> Sequence[Entry]:
        return await self._there.signals(run_id, signal_id)

    async def runs(self, wanted: Wanted = EVERY_RUN, *, limit: int, before: str | None = None) -> Sequence[RunLine]:
        return await self._there.runs(wanted, limit=limit, before=before)

    def version(self, run_id: str) -> int:
        return self._there.version(run_id)

    def newest(self) -> int:
        return self._there.newest()

    def places(self, after: int, limit: int) -> Sequence[Place]:
        return self._there.places(after, limit)

    async def run_of(self, wake_id: str) -> str | None:
        return await self._there.run_of(wake_id)

    async def unsettled(self, since: datetime) -> Sequence[str]:
        return await self._there.unsettled(since)

    async def counts(self) -> dict[Status, int]:
        return await self._there.counts()


@dataclass(slots=True)
class House:
    """`wrong` is what /readyz finds."""

    app: FastAPI
    desk: Desk
    store: SqliteStore
    archive: MoodyArchive
    feed: Feed
    bus: SilentBus
    clock: FakeClock
    workspace: Workspace
    shelf: Shelf
    files: RunFiles
    picky: Picky
    operations: Operations
    letters: Letterbox
    streams: EventStreams
    signing: Signing
    switch: Switch
    wrong: dict[str, str] = field(default_factory=dict)

    def client(self, who: str | None = "admin", **more: Any) -> httpx2.AsyncClient:
        """A caller in process."""
        transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=bearer(who), **more)

    def table(self) -> dict[tuple[str, str], APIRoute]:
        """Every route, by method and path."""
        routes = [route for route in self.app.routes if isinstance(route, APIRoute)]
        assert len(routes) == len(self.app.routes), "a route that is no call"
        return {(method, route.path): route for route in routes for method in route.methods or ()}

    async def play(self, commits: Sequence[Commit]) -> str:
        """Let a run happen here; returns its id."""
        for commit in commits:
            before = await self.store.load(commit.entry.run_id)
            await self.elsewhere([commit])
            self.feed.tell(tell(before.state if before else None, commit.entry))
        return commits[0].entry.run_id

    async def overhear(self, commits: Sequence[Commit]) -> str:
        """Let it happen in another process, of which this one hears."""
        for commit in commits:
            await self.elsewhere([commit])
            self.feed.elsewhere(overheard(commit, self.archive.newest()))
        return commits[0].entry.run_id

    async def elsewhere(self, commits: Sequence[Commit]) -> str:
        """Let it happen in another process, of which this one hears nothing."""
        for commit in commits:
            if commit.entry.seq == 1:
                await self.store.accept(wake_of(commit), commit)
            else:
                await self.store.commit(commit)
        return commits[0].entry.run_id

    async def state(self, run_id: str) -> RunState:
        run = await self.store.load(run_id)
        assert run is not None
        return run.state

    async def how_many(self) -> int:
        return len(await self.store.runs(limit=1000))


def overheard(commit: Commit, position: int) -> Elsewhere:
    """What this process hears of a commit of another one."""
    state, entry = commit.state, commit.entry
    return Elsewhere(entry=entry, position=position, by="another", status=state.status, caller=state.brief.caller)


def bearer(who: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret(who)}"} if who else {}


def known_token(name: str) -> TokenSettings:
    return TokenSettings(name=name, scopes=TOKENS[name], token=SecretStr(secret(name)))


async def nothing_to_leave(_: float) -> None:
    """Nobody listens to a bus here."""


async def no_metrics() -> bytes:
    return b""


def secret(who: str) -> str:
    return f"secret-of-the-{who}"


@contextlib.asynccontextmanager
async def open_house(
    folder: Path, *, tokens: tuple[TokenSettings, ...] | None = None, max_queued: int = 1000
) -> AsyncIterator[House]:
    """Everything; without `tokens`, those of TOKENS are known."""
    async with SqliteStore.open(folder / "store") as store, asyncio.TaskGroup() as group:
        clock, bus, archive, brake = FakeClock(), SilentBus(), MoodyArchive(store), Brake()
        feed, ring = Feed(archive, look_every_s=0.05), KeyRing.fresh()
        known = tuple(map(known_token, TOKENS)) if tokens is None else tokens
        settings = AgentSettings(http=HttpSettings(tokens=known), trace_url="http://traces/{trace_id}")
        spending = Spending(clock)
        quotas = Quotas(clock, spending, settings.quota_of)
        limits = SharedLimits(Pace(), spending, quotas)
        thinker = Thinker(_NoModel(), _NoSchemas(), Evidence(archive, MemoryArtifacts()), clock, brake, limits, slots=4)

        def committed(moment: Moment) -> None:
            log_lines.write(moment)
            feed.tell(moment)
            quotas.committed(moment)

        spent = store.taken.spent(clock.now().date())
        quotas.recall(store.taken.open_runs(), {caller: size for caller, (_, size) in spent.items()})
        capabilities, signing = Capabilities(ring), Signing(ring, folder / "store")
        publisher = Publisher(bus, clock, lambda _: True, capabilities, signing, lambda _: "", brake)
        turns = Turns(store, publisher, thinker, clock, committed, brake)
        switch = Switch(Halting(brake, store.halts, MemoryBoard(), turns, store, clock, lambda: None))
        policy = LimitPolicy(defaults=Limits(deadline_at=NOON), cap_context_bytes=MAX_BODY_BYTES)
        instruments = Instruments()
        incoming = IncomingMetrics(instruments)
        room = Room(store.counts, max_queued=max_queued)
        intake = Intake(
            turns,
            _NoSkills(),
            Results(capabilities=capabilities, children=ChildResults(store, MemoryArtifacts())),
            NewRuns(policy=policy, fused=True, verify=False, trace_url=settings.trace_url),
            Admission(brake=brake, room=room, quotas=quotas),
            incoming,
            clock,
        )
        picky = Picky()
        executors = Executors(skills=_NoSkills(), troubles=_NoTroubles(), callbacks=picky)
        desk = Desk(store, archive, store.inbox, intake, executors, Background(group))
        workspace, shelf = Workspace(folder / "workspaces"), Shelf({})
        files = RunFiles(workspace, archive, shelf)
        wrong: dict[str, str] = {}

        async def readiness() -> Mapping[str, str]:
            return {"bus": "", "store": "", "skills": "", "halt": brake.holds} | wrong

        letters = Letterbox()
        draining = Draining(
            brake=brake, background=Background(group), leave=nothing_to_leave, thinking=lambda: 0, end=lambda: None
        )
        rules = Rules(days=dict.fromkeys((Status.DONE, Status.CANCELLED), A_DAY), reopens=7 * A_DAY)
        belongings = RunBelongings(folder / "workspaces", MemoryArtifacts())
        pruning = Pruning(store.forgetting, belongings, rules, clock)
        operations = operators(store, archive, letters, readiness, _NoSkills(), clock, switch, draining, pruning)
        exposed = partial(exposition, instruments, "agentic-loop")
        streams = EventStreams(feed, store, archive)
        app = create_app(desk, files, readiness, settings, operations=operations, streams=streams, metrics=exposed)
        inside = clock, workspace, shelf, files, picky, operations, letters, streams, signing, switch
        yield House(app, desk, store, archive, feed, bus, *inside, wrong)


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, *, send_buffer: int | None = None, protocol: type[BoundedProtocol] = BoundedProtocol
) -> AsyncIterator[int]:
    """A real server on a free port, as the agent runs it. `send_buffer` is the kernel's, in bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if send_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        config = uvicorn.Config(
            app,
            loop="none",
            http=protocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            await task
