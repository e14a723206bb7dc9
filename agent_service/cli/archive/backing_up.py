"""`agentic backup`: what the agent, the gateway and the bucket hold, into one file, while all of them go on.

In the order runs, ledger, artifacts, so that the ledger knows each call of a run in the backup, and the bucket each
artifact. Killed, it leaves whole backups as they are, and the next goes on with its blocks.
"""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_service import settings
from agent_service.cli import whereabouts
from agent_service.cli.archive.records import Outcome, bus_at_hand, records
from agent_service.settings import AgentSettings
from agent_service.store.sql.database import FILE
from groundwork.backup.archive import Archive, place_of
from groundwork.backup.files import KEYS, pieces, pieces_of, snapshot
from groundwork.backup.told import KeptFile, Part, Whole
from groundwork.nats.artifact_bucket import ArtifactBucket, NoSuchArtifact
from groundwork.service.errors import Failure, Misconfigured
from groundwork.service.installed import installed_version
from groundwork.service.keys import KeyRing
from groundwork.service.store_folder import ID_FILE, known_id
from schemas import subjects

AGENT, GATEWAY, ARTIFACTS = "agent", "gateway", "artifacts"
BESIDE = (ID_FILE, "progress.wanted")
"""What lies beside the database, and goes with it."""
_COUNTED = "SELECT count(*), coalesce(sum(status IN ('queued', 'running', 'paused')), 0) FROM runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    place: str
    with_keys: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedUp(Outcome):
    file: str
    backup: str
    written: int
    about: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    """The files with keys, which are not in it."""

    @property
    def ok(self) -> bool:
        return ARTIFACTS not in self.left_out

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {what}" for about in self.about.values() for what, number in about.items())
        lines = [f"✓ {self.backup} is in {self.file}: {counts}; {_size(self.written)} were new"]
        lines += [f"! without {part}: {why}" for part, why in self.left_out.items()]
        if self.keys:
            lines.append(
                f"The keys are not in it, and nothing can be proved without them: keep {' and '.join(self.keys)} in "
                "another place too; or make backups --with-keys, which nobody else may read then"
            )
        return "\n".join(lines)


async def backup(config: Path | None, order: Order) -> BackedUp:
    """Raises Misconfigured for a store that cannot be backed up, or a file that is no backup, and TryAgain."""
    path = whereabouts.nearby(config)
    loaded, file = settings.load(path), place_of(order.place)
    if not (loaded.shared or (loaded.store / FILE).is_file()):
        raise Misconfigured(f"there is no database {loaded.store / FILE}: name the configuration of its agent")
    ring, at = _ring(loaded), datetime.now(UTC)
    keys = loaded.keys_path() if order.with_keys else None
    async with _folder_of_runs(path, loaded) as folder:
        name, runs = await asyncio.to_thread(_back_up_runs, file, at, folder, ring, keys)
    parts = {AGENT: runs}
    told = await _of_gateway(path, file, name, with_keys=order.with_keys)
    left_out = {GATEWAY: told["left_out"]} if told["left_out"] else {}
    try:
        parts[ARTIFACTS] = await _back_up_artifacts(file, name, loaded, ring)
    except Failure as error:
        left_out[ARTIFACTS] = str(error)
    with Archive.to_write(file) as archive:
        digests = {part: digest for part in (AGENT, GATEWAY, ARTIFACTS) if (digest := archive.digest(name, part))}
        archive.complete(Whole(backup=name, at=at.isoformat(), parts=digests, left_out=left_out), ring)
        if order.most:
            archive.forget_all_but(order.most)
    about = {AGENT: parts[AGENT][0].about, GATEWAY: told["about"]}
    about |= {ARTIFACTS: parts[ARTIFACTS][0].about} if ARTIFACTS in parts else {}
    return BackedUp(
        file=str(file),
        backup=name,
        written=sum(written for _, written in parts.values()) + told["written"],
        about=about,
        left_out=left_out,
        keys=() if order.with_keys else (str(loaded.keys_path()), *told["keys"]),
    )


def _ring(loaded: AgentSettings) -> KeyRing:
    if not loaded.keys_path().exists():
        raise Misconfigured(f"there is no file {loaded.keys_path()}: start the agent once, which makes its keys")
    return KeyRing.open(loaded.keys_path())


@asynccontextmanager
async def _folder_of_runs(config: Path | None, loaded: AgentSettings) -> AsyncIterator[Path]:
    if not loaded.shared:
        yield loaded.store
        return
    async with records(config) as kept:
        yield kept.database.path.parent


def _back_up_runs(
    file: Path, at: datetime, folder: Path, ring: KeyRing, keys: Path | None
) -> tuple[str, tuple[Part, int]]:
    with Archive.to_write(file, with_keys=keys is not None) as archive, snapshot(folder / FILE, file) as copy:
        kept = [archive.keep(FILE, pieces(copy))]
        kept += [archive.keep(part, pieces(there)) for part in BESIDE if (there := folder / part).exists()]
        if keys:
            kept.append(archive.keep(KEYS, pieces(keys)))
        part = Part(
            part=AGENT,
            at=at.isoformat(),
            program=installed_version(),
            store=known_id(folder),
            files=tuple(kept),
            about=_counted(copy),
        )
        name = archive.fresh_name(at)
        archive.tell(name, part, ring)
        return name, (part, archive.written)


def _counted(copy: Path) -> dict[str, int]:
    with closing(sqlite3.connect(copy)) as connection:
        ((runs, under_way),) = connection.execute(_COUNTED).fetchall()
    return {"runs": runs, "of them under way": under_way}


async def _of_gateway(config: Path | None, file: Path, name: str, *, with_keys: bool) -> dict[str, Any]:
    options = ["--into", name, "--json", *(["--with-keys"] if with_keys else [])]
    return await run_gateway("backup", str(file), *options, config=config)


async def run_gateway(*arguments: str, config: Path | None) -> dict[str, Any]:
    named = ("--config", str(config)) if config else ()
    called = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ductile_gateway", *arguments, *named),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaint = await called.communicate()
    if called.returncode:
        raise Misconfigured(complaint.decode(errors="replace").strip() or f"the gateway's {arguments[0]} ended")
    answer: dict[str, Any] = json.loads(out)
    return answer


async def _back_up_artifacts(file: Path, name: str, loaded: AgentSettings, ring: KeyRing) -> tuple[Part, int]:
    at = datetime.now(UTC).isoformat()
    async with bus_at_hand(loaded) as link:
        bucket = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)
        with Archive.to_write(file) as archive:
            before = archive.newest(ARTIFACTS, ring)
            known = {kept.sha256: kept for kept in before.files} if before else {}
            kept = [await _artifact(archive, bucket, one.key, known.get(one.sha256)) for one in await bucket.list()]
            files = tuple(one for one in kept if one)
            about = {"artifacts": len(files)}
            part = Part(part=ARTIFACTS, at=at, program=installed_version(), files=files, about=about)
            archive.tell(name, part, ring)
            return part, archive.written


async def _artifact(archive: Archive, bucket: ArtifactBucket, key: str, known: KeptFile | None) -> KeptFile | None:
    if known:
        return known.model_copy(update={"name": key})
    try:
        return archive.keep(key, pieces_of(await bucket.get(key)))
    except NoSuchArtifact:
        return None


def _size(number: int) -> str:
    return f"{number / 1024:.1f} KiB" if number < 1 << 20 else f"{number / (1 << 20):.1f} MiB"
