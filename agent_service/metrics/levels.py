"""Gauges, read on demand: runs in flight or waiting, what is still to be told, what is wrong."""

import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from agent_service.core.waiting import Status
from agent_service.kill_switch import Brake
from agent_service.run.journal import Run
from agent_service.run.ports import Clock
from groundwork.telemetry.metrics import Instruments

LIVE = (Status.QUEUED, Status.RUNNING, Status.PAUSED)


class Standing(Protocol):
    async def counts(self) -> dict[Status, int]: ...

    async def queued(self, limit: int) -> Sequence[str]: ...

    async def load(self, run_id: str) -> Run | None: ...


class People(Protocol):
    async def count(self) -> int: ...


def observe_inbox(instruments: Instruments, inbox: People) -> None:
    waiting = instruments.gauge(
        "agentic.inbox.runs", "Runs that wait for a person: paused, or escalated and not dismissed", unit="{run}"
    )

    async def read() -> None:
        waiting.show({(): await inbox.count()})

    instruments.observe(read, waiting)


def observe_runs(instruments: Instruments, store: Standing, clock: Clock, untold: Callable[[], int]) -> None:
    """`untold`: how many runs have entries that are not fully dispatched."""
    active = instruments.gauge(
        "agentic.run.active", "Runs that have not ended", unit="{run}", attributes=("agentic.run.state",)
    )
    age = instruments.gauge("agentic.run.queue.age", "Since when the longest queued run waits; 0 if none", unit="s")
    outbox = instruments.gauge(
        "agentic.outbox.runs", "Runs of which the bus could not be told all, and is later", unit="{run}"
    )

    async def read() -> None:
        runs, queued = await store.counts(), await store.queued(1)
        oldest = await store.load(queued[0]) if queued else None
        active.show({(status.value,): runs[status] for status in LIVE})
        age.show({(): (clock.now() - oldest.state.accepted_at).total_seconds() if oldest else 0.0})
        outbox.show({(): untold()})

    instruments.observe(read, active, age, outbox)


def observe_disk(instruments: Instruments, file: Path) -> None:
    """`file` is the store's database."""
    size = instruments.gauge("agentic.store.size", "The store's database, and its log of writes", unit="By")
    free = instruments.gauge("agentic.store.free", "What is free on the disk of the store", unit="By")

    async def read() -> None:
        log = file.with_name(f"{file.name}-wal")
        size.show({(): sum(one.stat().st_size for one in (file, log) if one.exists())})
        free.show({(): shutil.disk_usage(file.parent).free})

    instruments.observe(read, size, free)


def observe_brake(instruments: Instruments, brake: Brake) -> None:
    stopped = instruments.gauge("agentic.stopped", "1 while somebody has stopped everything, else 0")

    async def read() -> None:
        stopped.show({(): float(bool(brake.why))})

    instruments.observe(read, stopped)


class Purse(Protocol):
    @property
    def usd_per_day(self) -> float | None: ...

    @property
    def spent_usd(self) -> float: ...


def observe_spending(instruments: Instruments, purse: Purse) -> None:
    spent = instruments.gauge("agentic.spent.today", "What models cost today (UTC), in USD", unit="{USD}")
    limit = instruments.gauge(
        "agentic.spent.limit", "What may be spent on models in a day; none shown for no limit", unit="{USD}"
    )

    async def read() -> None:
        spent.show({(): purse.spent_usd})
        limit.show({(): purse.usd_per_day} if purse.usd_per_day is not None else {})

    instruments.observe(read, spent, limit)


def observe_readiness(instruments: Instruments, readiness: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
    ready = instruments.gauge(
        "agentic.ready", "1 for each thing that is needed and works, else 0", attributes=("agentic.check",)
    )

    async def read() -> None:
        ready.show({(name,): float(not wrong) for name, wrong in (await readiness()).items()})

    instruments.observe(read, ready)
