"""A store in memory that several processes share, each a member: who commits what, who lives, and what is heard of it.

It has no copies that lag: `Member.deaf` keeps a member from hearing of others' entries, which is what it knows late.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from agent_service.errors import VersionMoved
from agent_service.journal import Commit
from agent_service.moments import Elsewhere
from agent_service.ports import Untold, Wake
from groundwork.service.errors import TryAgain
from tests.kit.fakes import MemoryStore


class SharedMemory:
    """What the members share. `live`: those that are, in the order in which they inherit."""

    def __init__(self, *names: str) -> None:
        self.live = list(names)
        self.by: dict[str, list[str]] = {}
        """Who has committed the entries of each run."""
        self.done: set[tuple[str, int]] = set()
        self.truth = MemoryStore()
        self.members = {name: Member(self, name) for name in names}

    def sees_to(self, me: str, by: str) -> bool:
        return by == me or (by not in self.live and self.live[:1] == [me])

    async def who(self, run_id: str) -> list[str]:
        """Who has committed the entries of a run."""
        return self.by[run_id]

    def told_of(self, commit: Commit, by: str, *, unheard: bool) -> None:
        """Everybody hears of an entry, but who has committed it only where that one does not know it."""
        position, run = self.truth.newest(), commit.state
        told = Elsewhere(
            entry=commit.entry, position=position, by=by, status=run.status, caller=run.brief.caller, opened=0
        )
        for name, member in self.members.items():
            if name != by or unheard:
                member.hear(told)


Hears = Callable[[Elsewhere], None]


class Member(MemoryStore):
    """One process's view of it. Fills the ports RunStore and Archive."""

    def __init__(self, shared: SharedMemory, me: str) -> None:
        super().__init__(shared.truth)
        self.me = me
        self._hears: Hears = lambda _: None
        self.deaf = False
        """Whether it hears of nothing for now."""
        self.fenced = False
        """Whether it was found dead, and may commit no more."""
        self._loses_word = False
        self._shared = shared

    def listen(self, hears: Hears) -> None:
        """Who is told of the entries of others."""
        self._hears = hears

    def loses_word(self) -> None:
        """Its next commit is stored without its hearing so."""
        self._loses_word = True

    def hear(self, told: Elsewhere) -> None:
        if not self.deaf:
            self._hears(told)

    async def tell(self) -> None:
        """Nothing: what is told is known to all at once."""

    async def caught_up(self) -> None:
        """It knows at once all that there is."""

    async def accept(self, wake: Wake, commit: Commit) -> str:
        self._held()
        run_id = await super().accept(wake, commit)
        if run_id == commit.entry.run_id:
            self._stored_by_me(commit)
        return run_id

    async def commit(self, commit: Commit) -> None:
        self._held()
        if commit.entry.seq != self.version(commit.entry.run_id) + 1:
            raise VersionMoved(commit.entry.run_id)
        await super().commit(commit)
        self._stored_by_me(commit)

    def told(self, run_id: str, seq: int, *, since: int = 1) -> None:
        seqs = range(since, seq + 1)
        self._shared.done |= {(run_id, each) for each in seqs if self._sees_to(run_id, each)}

    async def untold(self, limit: int) -> Sequence[Untold]:
        left = ((run_id, self._left_of(run_id)) for run_id in sorted(self._shared.by))
        return [Untold(run_id=run_id, seqs=seqs) for run_id, seqs in left if seqs][:limit]

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        return (await self.ours(await super().due(now, limit)))[:limit]

    async def queued(self, limit: int) -> Sequence[str]:
        return (await self.ours(await super().queued(limit)))[:limit]

    async def ours(self, run_ids: Sequence[str]) -> Sequence[str]:
        return [run_id for run_id in run_ids if self._shared.sees_to(self.me, self._shared.by[run_id][-1])]

    async def sees_to(self, run_id: str, seq: int) -> bool:
        return self._sees_to(run_id, seq)

    async def is_current(self, run_id: str, version: int) -> bool:
        return self.version(run_id) == version

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        entries = await self.entries(run_id, after=since)
        others = (e for e in entries if e.kind == "CallReserved" and self._shared.by[run_id][e.seq - 1] != self.me)
        return any(getattr(entry.decoded(), "call", None) == call for entry in others)

    def _sees_to(self, run_id: str, seq: int) -> bool:
        return self._shared.sees_to(self.me, self._shared.by[run_id][seq - 1])

    def _left_of(self, run_id: str) -> tuple[int, ...]:
        seqs = range(1, self.version(run_id) + 1)
        return tuple(seq for seq in seqs if (run_id, seq) not in self._shared.done and self._sees_to(run_id, seq))

    def _held(self) -> None:
        if self.fenced:
            raise TryAgain("another agent has taken this one's place", delay_s=0)

    def _stored_by_me(self, commit: Commit) -> None:
        self._shared.by.setdefault(commit.entry.run_id, []).append(self.me)
        lost, self._loses_word = self._loses_word, False
        self._shared.told_of(commit, self.me, unheard=lost)
        if lost:
            raise TryAgain("the acknowledgement is lost", delay_s=0)
