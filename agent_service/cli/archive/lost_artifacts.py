"""`agentic restore --artifacts`: contents that the bucket has lost come back from the runs' folders.

Only where their SHA-256 is the journal's. The agent may run.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_service.bus.buckets import NatsArtifacts, key_of
from agent_service.cli.archive.records import (
    Outcome,
    Records,
    artifacts_of,
    bus_at_hand,
    hashes_in,
    intact_copy,
    records,
)
from agent_service.cli.archive.writing import NOWHERE
from agent_service.errors import Damaged
from groundwork.nats.link import NatsLink

NOT_THE_SAME = "what the bucket has is not what its tool made, nor is there a copy in the run's folder"
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
        stored, found = await hashes_in(link), Back()
        for run_id, paths in (await kept.store.artifacts()).items():
            found.runs += 1
            await _bring_back(kept, link, (run_id, paths), stored, found)
    return found


async def _bring_back(
    kept: Records, link: NatsLink, run: tuple[str, Sequence[str]], stored: Mapping[str, str], found: Back
) -> None:
    run_id, paths = run
    try:
        named = artifacts_of(await kept.entries(run_id))
    except Damaged as error:
        found.lost |= dict.fromkeys((key_of(run_id, path) for path in paths), str(error))
        return
    for path in paths:
        key, artifact = key_of(run_id, path), named.get(path)
        digest = artifact.sha256 if artifact else None
        if stored.get(key) and digest in (None, stored[key]):
            found.kept += 1
        elif artifact is None or digest is None:
            found.lost[key] = NO_HASH
        elif content := await asyncio.to_thread(intact_copy, kept, run_id, artifact):
            await NatsArtifacts(link).put(run_id, path, content)
            found.back.append(key)
        else:
            found.lost[key] = NOT_THE_SAME if stored.get(key) else NOWHERE
