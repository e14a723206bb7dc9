"""`agentic verify --all`: every run, and whether the store is the one that its agent left, by what is known elsewhere.

It reads only, while the agent runs or not. The bus is asked only where it is wanted.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_service.anchoring import Witnesses, contradictions
from agent_service.bus.anchors import NatsAnchors
from agent_service.bus.ends import ToldEnd, told_ends
from agent_service.cli.configuration import told
from agent_service.cli.records import Records, bus_at_hand, bus_when_needed, records
from agent_service.cli.run_folder import Verified, verified
from agent_service.store.anchor_file import AnchorFile
from agent_service.store.moving.into_file import AgainstLog
from agent_service.store.seals import Seals
from agent_service.telling.folder.verify import Flaw
from agent_service.tombstones import Tombstone
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured
from groundwork.service.key_ring import KeyRing
from groundwork.service.store_id import known_id

STORE, BUS = "store", "bus"
AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreVerified:
    """`runs` were looked at, and the tombstones of those that are `gone`; `flawed` are those that are not as they were
    written, `flaws` those of the whole store.

    `anchors`: by how many the store was measured.
    """

    config: str
    runs: int
    anchors: int
    ends: int
    flaws: tuple[Flaw, ...]
    flawed: tuple[Verified, ...]
    shared: bool = False
    gone: int = 0

    @property
    def ok(self) -> bool:
        return not self.flaws and not self.flawed

    def for_programs(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        lines = [f"✗ {flaw}" for flaw in self.flaws]
        lines += [f"{line}  ({run.run_id})" for run in self.flawed for line in str(run).splitlines()]
        if self.ok and self.shared:
            lines = [f"✓ {self.runs} runs are as they were written, and each fact of the stream is there"]
        elif self.ok:
            by = f"{self.anchors} anchors" + (f" and the {self.ends} ends that the bus was told" if self.ends else "")
            gone = f", so is what is left of the {self.gone} that are gone" if self.gone else ""
            lines = [f"✓ {self.runs} runs are as they were written{gone}, and none is missing by {by}"]
        return "\n".join(lines)


async def verify_all(config: Path | None, *, against_bus: bool) -> StoreVerified:
    """Check the whole store. Raises Misconfigured without a store or keys that can be read, and Failure where the bus
    is to be asked and does not answer."""
    async with AsyncExitStack() as opened:
        kept = await opened.enter_async_context(records(config))
        if kept.ring is None:
            raise Misconfigured(
                f"there is no file {kept.settings.keys_path()}: without it nothing can be told from forged"
            )
        link = await opened.enter_async_context(bus_at_hand(kept.settings)) if against_bus else None
        ends = await told_ends(link, kept.ring) if link else []
        anchors, flaws = await _of_store(kept, kept.ring, link)
        tombstones = [tombstone async for tombstone in kept.store.graves.every()]
        flaws += [_of_tombstone(one) for one in tombstones if not Seals(kept.ring).fits(one)]
        flaws += [flaw for end in ends if (flaw := await _of_end(kept, end))]
        artifacts = await opened.enter_async_context(bus_when_needed(kept.settings))
        verdicts = [await verified(kept, run_id, artifacts) async for run_id in _every_run(kept)]
    return StoreVerified(
        config=told(kept.config),
        runs=len(verdicts),
        anchors=anchors,
        ends=len(ends),
        flaws=tuple(flaws),
        flawed=tuple(verdict for verdict in verdicts if not verdict.ok),
        shared=kept.shared is not None,
        gone=len(tombstones),
    )


async def _every_run(kept: Records) -> AsyncIterator[str]:
    before: str | None = None
    while lines := await kept.store.runs(limit=AT_ONCE, before=before):
        for line in lines:
            yield line.run_id
        before = lines[-1].run_id


async def _of_store(kept: Records, ring: KeyRing, link: NatsLink | None) -> tuple[int, list[Flaw]]:
    """By how many anchors the store was measured, and what they contradict. A copy of a shared one is held against the
    log, which is the truth."""
    if kept.shared:
        there = await AgainstLog(kept.shared).flaws(None)
        return 0, [Flaw(kind="changed", place=STORE, text=f"{about}: {text}") for about, text in there.items()]
    witnesses = Witnesses(
        store=known_id(kept.settings.store),
        ring=ring,
        beside=AnchorFile(kept.settings.keys_path()),
        bus=NatsAnchors(link) if link else None,
    )
    anchors = await witnesses.anchors()
    standing = kept.store.standing(Seals(ring))
    found: Sequence[str] = contradictions(standing, await standing.counted(), anchors)
    if not anchors:
        found = ["nothing is known of it elsewhere: no anchor names it"]
    return len(anchors), [Flaw(kind="changed", place=STORE, text=text) for text in found]


def _of_tombstone(tombstone: Tombstone) -> Flaw:
    text = f"{tombstone.run_id} is gone, and what is left of it is not what the agent wrote: the seal does not fit"
    return Flaw(kind="changed", place=STORE, text=text)


async def _of_end(kept: Records, end: ToldEnd) -> Flaw | None:
    tombstone = await kept.store.tombstone(end.run_id)
    if tombstone and (end.seq < tombstone.version or (end.seq, end.head) == (tombstone.version, tombstone.head)):
        return None
    entries = await kept.store.entries(end.run_id, after=end.seq - 1, limit=1)
    if entries and entries[0].hash == end.head:
        return None
    what = "another entry is there now" if entries else "it is not there any more"
    text = f"{end.subject} of {end.run_id} was told with entry {end.seq}: {what}"
    return Flaw(kind="changed" if entries else "missing", place=BUS, text=text)
