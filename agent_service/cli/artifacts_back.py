"""`agentic restore --artifacts`: what the bucket of artifacts has lost comes back from the copies in the runs' folders.

Beside the agent or without it. A content goes back only where it is the one that the journal recorded, by its SHA-256;
what is in the bucket as it was recorded stays.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_service.bus.artifacts import NatsArtifacts, key_of
from agent_service.cli.outcome import Outcome
from agent_service.cli.records import Records, artifacts_of, bus_at_hand, records
from agent_service.errors import Damaged
from agent_service.telling.folder.disk import TooLarge, Unsafe
from agent_service.telling.outputs import NamedArtifact
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink
from schemas import subjects

NEITHER = "neither the bucket nor the run's folder has it"
NOT_THE_SAME = "what is there is not what its tool made, by its SHA-256"
NO_HASH = "its tool told no SHA-256, so no copy can be proved"


@dataclass(slots=True, kw_only=True)
class Back(Outcome):
    """`kept` are in the bucket as they were; `back` were brought back; `lost` by name, and why."""

    runs: int = 0
    kept: int = 0
    back: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.lost

    def __str__(self) -> str:
        there = f"{len(self.back)} artifacts came back from the runs' folders, {self.kept} were in the bucket"
        return "\n".join([f"✓ {there}, of {self.runs} runs", *(f"! {key}: {why}" for key, why in self.lost.items())])


async def bring_back(config: Path | None) -> Back:
    """Raises Misconfigured without a store that can be read, and TryAgain where the bus does not answer."""
    async with records(config) as kept, bus_at_hand(kept.settings) as link:
        stored = {one.key: one.sha256 for one in await ArtifactBucket(link, subjects.ARTIFACT_BUCKET).list()}
        found = Back()
        for run_id, paths in (await kept.store.artifacts()).items():
            found.runs += 1
            await _of_run(kept, link, (run_id, paths), stored, found)
    return found


async def _of_run(
    kept: Records, link: NatsLink, run: tuple[str, Sequence[str]], stored: Mapping[str, str], found: Back
) -> None:
    run_id, paths = run
    folder = await asyncio.to_thread(kept.workspace.files, run_id)
    copies = {file.path: file.sha256 for file in folder.files} if folder else {}
    apart = [path for path in paths if stored.get(key_of(run_id, path), "") != copies.get(path)]
    found.kept += len(paths) - len(apart)
    try:
        named = artifacts_of(await kept.entries(run_id)) if apart else {}
    except Damaged as error:
        found.lost |= dict.fromkeys((key_of(run_id, path) for path in apart), str(error))
        return
    for path in apart:
        key = key_of(run_id, path)
        why, content = await asyncio.to_thread(_proved, kept, run_id, named.get(path), stored.get(key))
        if content is not None:
            await NatsArtifacts(link).put(run_id, path, content)
            found.back.append(key)
        elif why:
            found.lost[key] = why
        else:
            found.kept += 1


def _proved(kept: Records, run_id: str, named: NamedArtifact | None, stored: str | None) -> tuple[str, bytes | None]:
    """Why it cannot come back, or the copy that does; neither where the bucket has what was recorded."""
    if named is None or named.sha256 is None:
        return ("" if stored else NO_HASH), None
    if stored == named.sha256:
        return "", None
    try:
        copy = kept.workspace.read(run_id, named.path)
    except (Unsafe, TooLarge):
        copy = None
    if copy is None:
        return (NOT_THE_SAME if stored else NEITHER), None
    return ("", copy) if hashlib.sha256(copy).hexdigest() == named.sha256 else (NOT_THE_SAME, None)
