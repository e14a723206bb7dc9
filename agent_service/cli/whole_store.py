"""`agentic verify --all`: every run, and on request what the bus was told of their ends.

It reads only, while the agent runs or not.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from agent_service.bus.ends import ToldEnd, told_ends
from agent_service.cli.configuration import told
from agent_service.cli.outcome import Outcome
from agent_service.cli.records import Records, bus_at_hand, bus_when_needed, records
from agent_service.cli.run_folder import Verified, verified
from agent_service.store.copying import left_out
from agent_service.telling.folder.verify import Flaw
from groundwork.service.errors import Misconfigured

STORE, BUS = "store", "bus"
AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreVerified(Outcome):
    """`runs` were looked at; `flawed` are those that are not as they were written, `flaws` those of the whole store.
    `ends`: so many endings on the bus were compared."""

    config: str
    runs: int
    ends: int
    flaws: tuple[Flaw, ...]
    flawed: tuple[Verified, ...]

    @property
    def ok(self) -> bool:
        return not self.flaws and not self.flawed

    def __str__(self) -> str:
        if self.ok:
            by = f", and end as the {self.ends} endings on the bus say" if self.ends else ""
            return f"✓ {self.runs} runs are as they were written{by}"
        lines = [f"✗ {flaw}" for flaw in self.flaws]
        return "\n".join(lines + [f"{line}  ({run.run_id})" for run in self.flawed for line in str(run).splitlines()])


async def verify_all(config: Path | None, *, against_bus: bool) -> StoreVerified:
    """Raises Misconfigured without a store that can be read; to compare with the bus, also without keys, and Failure
    where that does not answer."""
    async with AsyncExitStack() as opened:
        kept = await opened.enter_async_context(records(config))
        ends = await _ends(kept) if against_bus else []
        found = await left_out(kept.database) if kept.shared else {}
        flaws = [Flaw(kind="changed", place=STORE, text=f"{about}: {text}") for about, text in found.items()]
        flaws += [flaw for end in ends if (flaw := await _of_end(kept, end))]
        artifacts = await opened.enter_async_context(bus_when_needed(kept.settings))
        verdicts = [await verified(kept, run_id, artifacts) async for run_id in _every_run(kept)]
    return StoreVerified(
        config=told(kept.config),
        runs=len(verdicts),
        ends=len(ends),
        flaws=tuple(flaws),
        flawed=tuple(verdict for verdict in verdicts if not verdict.ok),
    )


async def _ends(kept: Records) -> list[ToldEnd]:
    if kept.ring is None:
        raise Misconfigured(f"there is no file {kept.settings.keys_path()}, by which endings are proved")
    async with bus_at_hand(kept.settings) as link:
        return await told_ends(link, kept.ring)


async def _every_run(kept: Records) -> AsyncIterator[str]:
    before: str | None = None
    while lines := await kept.store.runs(limit=AT_ONCE, before=before):
        for line in lines:
            yield line.run_id
        before = lines[-1].run_id


async def _of_end(kept: Records, end: ToldEnd) -> Flaw | None:
    if await kept.store.tombstone(end.run_id):
        return None
    entries = await kept.store.entries(end.run_id, after=end.seq - 1, limit=1)
    if entries and entries[0].hash == end.head:
        return None
    what = "another entry is there now" if entries else "it is not there any more"
    text = f"{end.subject} of {end.run_id} was told with entry {end.seq}: {what}"
    return Flaw(kind="changed" if entries else "missing", place=BUS, text=text)
