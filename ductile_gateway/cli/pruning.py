"""`ductile-gateway prune`: deletes expired records from the ledger. Beside a running gateway it only says what would
go.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated

import typer

from ductile_gateway import store
from ductile_gateway.cli import exits
from ductile_gateway.cli.options import AsJson, Config
from ductile_gateway.clock import SystemClock
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, open_store
from ductile_gateway.store.opening import Stores
from ductile_gateway.tidying import Kept, Tidying
from groundwork.service.errors import Misconfigured
from groundwork.service.store_folder import AlreadyRunning, ProcessLock
from groundwork.sqlite.file import open_for_reading
from schemas.values import dataclass

commands = typer.Typer()


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
    told = _pruned(settings, dry_run=dry_run)
    sys.stdout.write(f"{json.dumps(asdict(told)) if as_json else told}\n")


def _pruned(settings: GatewaySettings, *, dry_run: bool) -> Pruned:
    if dry_run:
        return Pruned(rows=asyncio.run(_would_go(settings)), done=False)
    try:
        with ProcessLock(settings.store):
            rows = asyncio.run(_tidied(settings))
    except AlreadyRunning:
        why = "the gateway at work here does it by itself, once an hour, and now for `agentic prune`"
        return Pruned(rows=asyncio.run(_would_go(settings)), done=False, why_not=why)
    return Pruned(rows=rows, done=True)


async def _would_go(settings: GatewaySettings) -> Mapping[str, int]:
    async with open_for_reading(settings.store / FILE, files(store) / "sql") as file:
        return await Tidying(file, None, Kept.by(settings), SystemClock()).would_go()


async def _tidied(settings: GatewaySettings) -> Mapping[str, int]:
    async with open_store(settings.store) as file:
        stores = Stores.embedded(file, folder=settings.store, run_bytes=settings.run_mb << 20)
        return await Tidying(file, stores, Kept.by(settings), SystemClock()).tidy()


@commands.command("prune")
def prune_command(
    config: Config = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """A gateway that runs does so by itself."""
    prune(exits.settings_of(config), dry_run=dry_run, as_json=as_json)
