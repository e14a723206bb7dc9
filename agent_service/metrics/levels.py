"""Gauges, read on demand: runs in flight or waiting, the outbox, the store, spending and readiness."""

import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from agent_service.admission.spending import Spending
from agent_service.core.waiting import Status
from agent_service.kill_switch import KillSwitch
from agent_service.run.journal import Run
from agent_service.run.ports import Clock
from groundwork.telemetry.metrics import Attributes, Instruments

LIVE = (Status.QUEUED, Status.RUNNING, Status.PAUSED)


class Store(Protocol):
    async def counts(self) -> dict[Status, int]: ...

    async def queued(self, limit: int) -> Sequence[str]: ...

    async def load(self, run_id: str) -> Run | None: ...


def observe_runs(
    instruments: Instruments,
    store: Store,
    inbox: Callable[[], Awaitable[int]],
    clock: Clock,
    undispatched: Callable[[], int],
) -> None:
    """`undispatched`: number of runs that are not fully dispatched."""

    async def active() -> Mapping[Attributes, float]:
        runs = await store.counts()
        return {(status.value,): runs[status] for status in LIVE}

    async def age() -> float:
        queued = await store.queued(1)
        oldest = await store.load(queued[0]) if queued else None
        return (clock.now() - oldest.state.accepted_at).total_seconds() if oldest else 0.0

    text = "Runs that have not ended"
    instruments.level("agentic.run.active", text, active, unit="{run}", attributes=("agentic.run.state",))
    for name, text, unit, look in (
        ("agentic.run.queue.age", "Since when the longest queued run waits; 0 if none", "s", age),
        ("agentic.outbox.runs", "Runs whose messages could not all be published yet", "{run}", undispatched),
        ("agentic.inbox.runs", "Runs that wait for a person: paused, or escalated and not dismissed", "{run}", inbox),
    ):
        instruments.level(name, text, look, unit=unit)


def observe_disk(instruments: Instruments, file: Path) -> None:
    """`file`: the store's database."""

    def size() -> int:
        both = (file, file.with_name(f"{file.name}-wal"))
        return sum(one.stat().st_size for one in both if one.exists())

    instruments.level("agentic.store.size", "The store's database, and its log of writes", size, unit="By")
    text = "Free space on the disk of the store"
    instruments.level("agentic.store.free", text, lambda: shutil.disk_usage(file.parent).free, unit="By")


def observe_limits(instruments: Instruments, spending: Spending, kill_switch: KillSwitch) -> None:
    text = "Cost of models today (UTC), in USD"
    instruments.level("agentic.spent.today", text, lambda: spending.spent_usd, unit="{USD}")
    text = "Limit on the cost of models in a day; absent without one"
    instruments.level("agentic.spent.limit", text, lambda: spending.usd_per_day, unit="{USD}")
    text = "1 while everything is stopped, else 0"
    instruments.level("agentic.stopped", text, lambda: float(bool(kill_switch.stopped_by)))


def observe_readiness(instruments: Instruments, readiness: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
    async def ready() -> Mapping[Attributes, float]:
        return {(name,): float(not wrong) for name, wrong in (await readiness()).items()}

    text = "1 for each dependency that works, else 0"
    instruments.level("agentic.ready", text, ready, attributes=("agentic.check",))
