"""A copy of the log becomes the store of one agent: held against the log once more, fact by fact, and sealed as it was.

The copy has the same schema, and the seals of runs are those that their agents made, so that nothing is written anew.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing

from agent_service.store.copying import Copied
from agent_service.store.facts import AnyFact, EntryFact, GoneFact, Newer, Poisoned, decoded, shape_of
from agent_service.store.seals import Seals
from agent_service.store.sql.queries import load_queries
from agent_service.store.standing import SqliteStanding
from groundwork.nats.shared_log import Fact

Flaws = dict[str, str]
"""By the run that each is about."""


class AgainstLog:
    """What a copy that has caught up holds otherwise than the log. Nobody writes to the log meanwhile."""

    def __init__(self, copied: Copied) -> None:
        self._copied = copied
        self._database = copied.database
        self._sql = load_queries("moving.sql")

    async def flaws(self, seals: Seals | None) -> Flaws:
        """Also runs that are not as an agent left them, unless there are no `seals`. Raises TryAgain, Misconfigured."""
        strange = await SqliteStanding(self._database, seals).unfitting() if seals else {}
        return strange | await self._different() | await self._left_out()

    async def _left_out(self) -> Flaws:
        rows = await self._database.read(self._sql["all_skipped"])
        return {run_id or f"fact {position}": f"what is at {position}: {why}" for position, run_id, why in rows}

    async def _different(self) -> Flaws:
        """Reads the whole log once more, on its own."""
        newest: dict[str, int] = {}
        flaws: Flaws = {}
        async for fact in self._facts():
            match _said(fact):
                case EntryFact() as entry:
                    newest[entry.run_id] = max(entry.seq, newest.get(entry.run_id, 0))
                    if flaw := self._flaw(entry):
                        flaws.setdefault(entry.run_id, f"entry {entry.seq} {flaw}")
                case GoneFact(runs=runs):
                    for run_id in (of for of, (version, _) in runs.items() if newest.get(of) == version):
                        newest.pop(run_id, None)
                        flaws.pop(run_id, None)
        ((runs_here, entries_here),) = await self._database.read(self._sql["how_much"])
        here, there = (runs_here, entries_here), (len(newest), sum(newest.values()))
        if flaws or here == there:
            return flaws
        return {"all runs": f"there are {here[0]} with {here[1]} entries, and {there[0]} with {there[1]} in the log"}

    async def _facts(self) -> AsyncIterator[Fact]:
        """Every one that is in the log now."""
        end = await self._copied.log.end()
        async with aclosing(self._copied.log.follow(0)) as followed:
            async for batch in followed:
                for fact in batch.messages:
                    yield fact
                if batch.upto >= end:
                    return

    def _flaw(self, entry: EntryFact) -> str:
        """What is otherwise in the copy; of the row only what the newest entry left."""
        row = (entry.status.value, entry.summary, entry.due_at, entry.state, entry.seal)
        for own_hash, is_newest, *kept in self._database.look_up(self._sql["held"], (entry.run_id, entry.seq)):
            if own_hash.hex() != entry.hash:
                return "is another"
            return "left another row" if is_newest and tuple(kept) != row else ""
        return "is missing"


def _said(fact: Fact) -> AnyFact | None:
    """What cannot be read is told by what was left out."""
    shape = shape_of(fact.subject)
    try:
        return decoded(shape, fact.subject, fact.body) if shape else None
    except (Newer, Poisoned):
        return None
