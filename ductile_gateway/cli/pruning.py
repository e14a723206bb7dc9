"""`ductile-gateway prune`: the ledger forgets what its time is over, and gives the room back.

A gateway that runs does so by itself once an hour; then only what would go is told. Nothing of a call that has not
ended, or whose answer nobody has been told, ever goes.
"""

import asyncio
import contextlib
import json
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from ductile_gateway.clock import SystemClock
from ductile_gateway.outbound.service import KEPT
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, deliveries, ledger, open_store, outbox
from ductile_gateway.store.deliveries import SqliteDeliveries
from ductile_gateway.store.ledger import SqliteLedger
from ductile_gateway.store.outbox import SqliteOutbox
from groundwork.service.errors import Misconfigured
from groundwork.service.process_lock import AlreadyRunning, ProcessLock
from groundwork.sqlite.file import microseconds

ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many `rows` of each kind went, or would go. `why_not`: why nothing was done."""

    rows: Mapping[str, int]
    done: bool
    why_not: str = ""

    def __str__(self) -> str:
        what = ", ".join(f"{number} {kind}" for kind, number in self.rows.items())
        if self.done:
            return f"✓ forgotten: {what}"
        return f"would be forgotten: {what}" + (f" ({self.why_not})" if self.why_not else "")


def prune(settings: GatewaySettings, *, dry_run: bool, as_json: bool) -> None:
    """Print what came of it. Raises Misconfigured where there is no ledger, and TryAgain."""
    if settings.shared:
        raise Misconfigured(
            "gateways that share a ledger forget by themselves, once an hour: there is nothing to prune"
        )
    path = settings.store / FILE
    if not path.is_file():
        raise Misconfigured(f"there is no ledger {path}: name the configuration of the gateway that wrote it")
    told = _pruned(settings, path, dry_run=dry_run)
    sys.stdout.write(f"{json.dumps(asdict(told)) if as_json else told}\n")


def _pruned(settings: GatewaySettings, path: Path, *, dry_run: bool) -> Pruned:
    ages = _ages(settings, SystemClock().now())
    counts = _counted(path, ages)
    if dry_run:
        return Pruned(rows=counts, done=False)
    try:
        with ProcessLock(settings.store):
            asyncio.run(_forget(settings.store, ages))
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute("VACUUM")
    except AlreadyRunning:
        return Pruned(rows=counts, done=False, why_not="the gateway at work here does it by itself, once an hour")
    return Pruned(rows=counts, done=True)


def _ages(settings: GatewaySettings, now: datetime) -> Mapping[str, datetime]:
    """Before which instant each kind goes."""
    return {
        "answers": now - timedelta(days=settings.ledger_days),
        "notifications": now - KEPT,
        "events from outside": now - timedelta(days=settings.ingress.remember_days),
    }


def _counted(path: Path, ages: Mapping[str, datetime]) -> dict[str, int]:
    statements = {"answers": ledger.OLD, "notifications": outbox.OLD, "events from outside": deliveries.OLD}
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
        return {
            kind: len(connection.execute(statement, (microseconds(ages[kind]), ALL)).fetchall())
            for kind, statement in statements.items()
        }


async def _forget(folder: Path, ages: Mapping[str, datetime]) -> None:
    async with open_store(folder) as file:
        await SqliteLedger(file).forget_before(ages["answers"])
        await SqliteOutbox(file).forget_before(ages["notifications"])
        await SqliteDeliveries(file).forget_before(ages["events from outside"])
