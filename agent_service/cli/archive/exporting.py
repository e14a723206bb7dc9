"""`agentic export`: a run and its children into one file that proves itself anywhere. Read-only.

Pages are of the same instant as the journal. What other hands changed is not exported, for the agent signs the file.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent_service.archive.export_check import folded
from agent_service.archive.export_file import JOURNAL, SIGNED_AS, ExportedRun, Manifest, Signature, journal_of, written
from agent_service.cli.archive.records import Outcome, Records, Sources, artifacts_of, bus_when_needed, records
from agent_service.cli.archive.run_folder import journal_of as stored_journal
from agent_service.cli.errors import Exit, NotDone
from agent_service.history.artifacts import NamedArtifact
from agent_service.run.journal import Entry, as_decided
from agent_service.run.ports import Artifacts
from agent_service.trust.signing import PURPOSE
from agent_service.views.folder.verify import flaw_in_journal
from agent_service.views.folder.workspace import MAX_BYTES
from agent_service.views.pages.trail import trail
from groundwork.service.errors import Failure
from groundwork.service.installed import installed_version
from groundwork.service.keys import public_of, signature
from schemas.signing import signed

SUFFIX = ".zip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported(Outcome):
    """`runs`: status by id. `left_out`: why, by name. `signed_with`: id of the key; empty without the agent's keys."""

    file: str
    runs: dict[str, str]
    files: int
    bytes: int
    signed_with: str
    left_out: dict[str, str]

    @property
    def ok(self) -> bool:
        return not self.left_out

    def __str__(self) -> str:
        (first, status), *more = self.runs.items()
        others = f" with {len(more)} that it started" if more else ""
        size = f"{self.files} files, {self.bytes / 1024:.1f} KiB"
        lines = [f"✓ {first} ({status}){others} is in {self.file}: {size}"]
        lines += [f"! without {name}: {why}" for name, why in self.left_out.items()]
        if not self.signed_with:
            lines.append("! it is not signed, for the file with the agent's keys is not there")
        if still := [run_id for run_id, status in self.runs.items() if status in ("queued", "running", "paused")]:
            lines.append(f"! {', '.join(still)} had not ended: this is how it stood")
        lines.append(f"Anybody can check it: `agentic verify {self.file}`")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Part:
    run: ExportedRun
    files: dict[str, bytes]


async def export(name: str, place: Path | None, config: Path | None) -> Exported:
    """Raises NotDone for an unknown run and for one that was changed, and Misconfigured for a file that is there."""
    async with records(config) as kept, bus_when_needed(kept.settings) as bus:
        run_id = await kept.named(name)
        file = _file(place, run_id)
        parts = await _family(kept, run_id, bus)
        files = {name: content for part in parts for name, content in part.files.items()}
        manifest = Manifest(
            program=installed_version(),
            at=datetime.now(UTC),
            runs=tuple(part.run for part in parts),
            files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        )
        text = manifest.model_dump_json(indent=1).encode()
        signer = _signature(kept, text)
        signature_text = signer.model_dump_json().encode() if signer else None
        await asyncio.to_thread(written, file, text, signature_text, files)
    return Exported(
        file=str(file),
        runs={part.run.run_id: part.run.status.value for part in parts},
        files=len(files),
        bytes=file.stat().st_size,
        signed_with=signer.key if signer else "",
        left_out={f"{part.run.run_id}/{path}": why for part in parts for path, why in part.run.left_out.items()},
    )


def _file(place: Path | None, run_id: str) -> Path:
    if place is None or place.is_dir():
        return (place or Path()) / f"{run_id}{SUFFIX}"
    return place if place.suffix == SUFFIX else place.with_name(f"{place.name}{SUFFIX}")


async def _family(kept: Records, run_id: str, bus: Artifacts) -> list[_Part]:
    found, wanted = list[_Part](), [run_id]
    for one in wanted:
        entries = await _journal(kept, one)
        children = [child.run_id for child in folded(entries).children]
        there = [child for child in children if kept.store.version(child)]
        left_out = {child: "there is no such run any more" for child in children if child not in there}
        found.append(await _part(kept, one, entries, left_out, bus))
        wanted += [child for child in there if child not in wanted]
    return found


async def _journal(kept: Records, run_id: str) -> list[Entry]:
    flaws, entries = await stored_journal(kept, run_id)
    flaw = next((str(flaw) for flaw in flaws if flaw.kind != "behind"), None) or flaw_in_journal(entries, run_id)
    if flaw:
        text = f"{run_id} is not as its agent left it ({flaw}), so nothing was exported: see `agentic verify {run_id}`"
        raise NotDone(text, Exit.FAILED)
    return entries


async def _part(
    kept: Records, run_id: str, entries: Sequence[Entry], left_out: dict[str, str], bus: Artifacts
) -> _Part:
    state = as_decided(entries)
    named = artifacts_of(list(entries))
    contents, missing = await _artifacts(kept, run_id, named, bus)
    pages = {name: text.encode() for name, text in trail(entries).items()}
    run = ExportedRun(
        run_id=run_id,
        wake_id=state.wake_id,
        accepted_at=state.accepted_at,
        status=state.status,
        version=len(entries),
        head=entries[-1].hash,
        left_out=left_out | missing,
    )
    files = {JOURNAL: journal_of(entries), **pages, **contents}
    return _Part(run, {f"{run_id}/{path}": content for path, content in files.items()})


async def _artifacts(
    kept: Records, run_id: str, named: dict[str, NamedArtifact], bus: Artifacts
) -> tuple[dict[str, bytes], dict[str, str]]:
    contents, left_out = dict[str, bytes](), dict[str, str]()
    gone = kept.store.graves.artifacts_of(run_id)
    sources = Sources(kept.workspace, bus, named)
    for path, artifact in named.items():
        try:
            content = None if gone else await sources.get(run_id, path)
        except Failure as error:
            left_out[path] = str(error)
            continue
        if content is None:
            by_rule = str(gone) if gone else ""
            left_out[path] = by_rule or "neither the run's folder nor the bucket has it as its tool made it"
        elif why := _why_not(artifact, content):
            left_out[path] = why
        else:
            contents[path] = content
    return contents, left_out


def _why_not(artifact: NamedArtifact, content: bytes) -> str:
    if len(content) > MAX_BYTES:
        return f"its {len(content)} bytes are more than a file may have here"
    if artifact.sha256 and hashlib.sha256(content).hexdigest() != artifact.sha256:
        return "what the bucket has is not what its tool made"
    return ""


def _signature(kept: Records, manifest: bytes) -> Signature | None:
    if kept.ring is None:
        return None
    key = kept.ring.keys[0]
    seed = key.derived(PURPOSE)
    return Signature(key=key.id, public=public_of(seed), signature=signature(seed, signed(SIGNED_AS, manifest)))
