"""`agentic rebuild`: writes the folder of a run anew from its journal, byte for byte, and tells what that changed.

It may run while the agent does. The bus is needed only for artifacts that the folder does not have intact.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_service.cli.complaints import Refused
from agent_service.cli.configuration import told
from agent_service.cli.exits import Exit
from agent_service.cli.records import Records, Sources, artifacts_of, bus_when_needed, records
from agent_service.journal import flaw_in_chain
from agent_service.telling.folder.writer import rewrite
from agent_service.telling.outputs import NamedArtifact


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What is different now: files by path. `missing` are artifacts that the store of artifacts has no more."""

    run_id: str
    config: str
    files: int
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]

    def for_programs(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{word:<8} {path}" for word in ("added", "changed", "removed", "missing") for path in getattr(self, word)
        ]
        same = "" if lines else ", nothing differed"
        return "\n".join((*lines, f"✓ {self.run_id}: {self.files} files are written from the journal{same}"))


async def rebuild(run_id: str, config: Path | None) -> Rebuilt:
    """Rebuild one run. Raises Refused for an unknown run or a flawed journal, Misconfigured when it needs the bus."""
    async with records(config) as kept, bus_when_needed(kept.settings) as bus:
        named = await _named(kept, run_id)
        before = await _files(kept, run_id)
        await rewrite(run_id, kept.store, kept.workspace, Sources(kept.workspace, bus, named))
        after = await _files(kept, run_id)
    return Rebuilt(
        run_id=run_id,
        config=told(kept.config),
        files=len(after),
        added=_sorted(after.keys() - before.keys()),
        changed=_sorted(path for path in after.keys() & before.keys() if after[path] != before[path]),
        removed=_sorted(before.keys() - after.keys()),
        missing=_sorted(named.keys() - after.keys()),
    )


async def _named(kept: Records, run_id: str) -> dict[str, NamedArtifact]:
    """The artifacts of a run. Raises Refused for a journal that nothing should be written from."""
    entries = await kept.entries(run_id)
    flaw = flaw_in_chain(entries)
    try:
        named = {} if flaw else artifacts_of(entries)
    except (ValueError, AssertionError, TypeError) as error:
        flaw = f"it cannot be followed: {error}"
    if flaw:
        message = f"the journal of {run_id} is not whole ({flaw}): nothing was written. Restore the database"
        raise Refused(message, Exit.FAILED)
    return named


def _sorted(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(paths))


async def _files(kept: Records, run_id: str) -> dict[str, str | None]:
    """What lies in the run's folder, by path, with its hash; what is no file of ours has none."""
    listing = await asyncio.to_thread(kept.workspace.files, run_id)
    if listing is None:
        return {}
    return {file.path: file.sha256 for file in listing.files} | dict.fromkeys(listing.foreign)
