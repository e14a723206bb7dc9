"""`agentic du`: what everything takes on the disk, by kind, and one run by itself.

Files are counted in the blocks that they take on this machine. What streams hold is told by the server.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from agent_service.bus.topology import topology
from agent_service.cli import output
from agent_service.cli.records import Records, bus_at_hand, records
from agent_service.settings import AgentSettings
from agent_service.store.sql.database import FILE
from agent_service.telling.folder.staging import ARTIFACTS
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.topology import found_stream
from groundwork.service.errors import Failure
from groundwork.service.strict_yaml import NotYaml, parse
from groundwork.sqlite.reserve import reserved
from schemas import subjects

BLOCK = 512
"""Bytes of what a file system calls a block, whatever its own are."""
GATEWAY_STORE = ".agentic/gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """`bytes` of one kind, where they are, and what there is to say of them."""

    kind: str
    bytes: int
    where: str
    note: str = ""


async def used(run: str | None, config: Path | None, *, as_json: bool) -> None:
    """Print it. Raises NotDone for an unknown run, and Misconfigured."""
    async with records(config) as kept:
        if run is not None:
            run_id = await kept.named(run)
            told, runs = await _of_run(kept, run_id), 1
            heading: dict[str, Any] = {"run_id": run_id}
        else:
            told = [*await _of_all(kept), *await _streams(kept.settings)]
            runs = sum((await kept.store.counts()).values())
            heading = {"runs": runs}
    if as_json:
        total = sum(one.bytes for one in told)
        per_run = total // runs if runs else None
        output.document({**heading, "bytes": total, "bytes_per_run": per_run, "kinds": [asdict(one) for one in told]})
    else:
        output.draw(_table(told, runs), wrap=False)


async def _of_all(kept: Records) -> list[Used]:
    settings, gateway = kept.settings, _gateway_store(kept.config)
    folder = settings.cache if settings.shared else settings.store
    pages, artifacts = await asyncio.to_thread(_workspaces, settings.workspaces)
    lying = f"of open runs and the {settings.keep_pages} that ended last; others are written when asked for"
    return [
        Used(kind="journal", bytes=_on_disk(folder), where=str(folder), note=_of_runs(folder)),
        Used(kind="pages", bytes=pages, where=str(settings.workspaces), note=lying),
        Used(kind="copies", bytes=artifacts, where=str(settings.workspaces), note="artifacts, as files"),
        Used(kind="ledger", bytes=_on_disk(gateway), where=str(gateway), note="the gateway's, gateway.ledger_days"),
    ]


def _of_runs(folder: Path) -> str:
    kept = reserved(folder / FILE)
    return "runs, for as long as they are kept" + (f"; {_size(kept)} are kept for a full disk" if kept else "")


async def _of_run(kept: Records, run_id: str) -> list[Used]:
    rows = await kept.store.bytes_of(run_id)
    if not rows:
        raise await kept.unknown(run_id)
    folder = kept.settings.workspaces / run_id
    artifacts = _on_disk(folder / ARTIFACTS)
    return [
        Used(kind="journal", bytes=rows, where=str(kept.settings.store), note="its rows"),
        Used(kind="pages", bytes=_on_disk(folder) - artifacts, where=str(folder)),
        Used(kind="copies", bytes=artifacts, where=str(folder / ARTIFACTS), note="artifacts, as files"),
        await _in_the_bucket(kept.settings, run_id),
    ]


async def _in_the_bucket(settings: AgentSettings, run_id: str) -> Used:
    """The run's artifacts on the bus."""
    where = f"bucket {subjects.ARTIFACT_BUCKET}"
    try:
        async with bus_at_hand(settings) as link:
            stored = await ArtifactBucket(link, subjects.ARTIFACT_BUCKET).list(f"{run_id}/")
    except Failure:
        return Used(kind="artifacts", bytes=0, where=where, note="not counted: no answer; see `agentic doctor`")
    return Used(kind="artifacts", bytes=sum(one.size for one in stored), where=where, note="on the bus")


async def _streams(settings: AgentSettings) -> list[Used]:
    """Those of the bus; one line that says so where it does not answer."""
    try:
        async with bus_at_hand(settings) as link:
            found = [await found_stream(link, spec) for spec in topology(shared=settings.shared).all_streams()]
    except Failure:
        return [Used(kind="streams", bytes=0, where="NATS", note="not counted: no answer; see `agentic doctor`")]
    return [
        Used(
            kind="stream",
            bytes=info.state.bytes,
            where=str(info.config.name),
            note=_bound(info.config.max_bytes, info.config.max_age),
        )
        for info in found
        if info
    ]


def _bound(most: int | None, age_s: float | None) -> str:
    days = f", {age_s / 86400:g} days" if age_s else ""
    return f"at most {_size(most)}{days}" if most and most > 0 else ""


def _gateway_store(config: Path | None) -> Path:
    """As the file says; the gateway's own settings are its own."""
    try:
        content = parse(config.read_text(encoding="utf-8")) if config else None
    except (OSError, UnicodeDecodeError, NotYaml):
        content = None
    section = content.get("gateway") if isinstance(content, dict) else None
    return Path(str(section.get("store", GATEWAY_STORE)) if isinstance(section, dict) else GATEWAY_STORE)


def _workspaces(root: Path) -> tuple[int, int]:
    """Of pages, with their folders, and of artifacts."""
    artifacts = sum(_on_disk(folder) for folder in root.glob(f"*/{ARTIFACTS}"))
    return _on_disk(root) - artifacts, artifacts


def _on_disk(place: Path) -> int:
    """0 where there is nothing; what goes meanwhile is not counted."""
    return sum(_blocks((place, *place.rglob("*")))) if place.exists() else 0


def _blocks(places: Iterable[Path]) -> Iterable[int]:
    for place in places:
        try:
            yield place.lstat().st_blocks * BLOCK
        except OSError:
            continue


def _table(told: list[Used], runs: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("kind", "size", "per run", "where", ""):
        table.add_column(name, justify="right" if name in ("size", "per run") else "left", overflow="fold")
    for one in told:
        table.add_row(one.kind, _size(one.bytes), _size(one.bytes // runs) if runs else "", one.where, one.note)
    total = sum(one.bytes for one in told)
    of = f"{runs} runs" if runs != 1 else "1 run"
    table.add_row("all", _size(total), _size(total // runs) if runs else "", of, "", style="bold")
    return table


def _size(number: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"
