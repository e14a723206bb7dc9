"""The ports of a shared store (log, copy, members), and which of the work is this member's."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from agent_service.run.ports import Untold
from agent_service.store.sql.database import load_queries
from groundwork.nats.shared_log import Fact
from groundwork.sqlite.file import SqliteFile, microseconds


class Log(Protocol):
    """Facts in one order, which the log's leader decides."""

    async def append(self, subject: str, body: bytes, *, after: int | None) -> int:
        """The position of the new fact. `after`: that of the newest of its subject; 0 for none, None for whichever.

        Raises Moved, NoRoom, Misconfigured, and TryAgain where it is not known whether the fact was stored.
        """

    async def newest(self, subject: str) -> Fact | None: ...

    async def end(self) -> int: ...

    async def purge(self, subject: str, before: int | None = None) -> None:
        """Forget a subject's facts, or those below a position. Raises TryAgain."""


class Copy(Protocol):
    """The facts that this process has written into its database, in the order of the log."""

    @property
    def reached(self) -> int: ...

    async def wait(self, seq: int) -> None:
        """Raises TryAgain after a while."""


class Members(Protocol):
    """The members of the store, one of which is this process."""

    @property
    def me(self) -> str: ...

    @property
    def live(self) -> frozenset[str]: ...

    def mine(self, owner: str, key: str) -> bool:
        """Whether this member sees to what is `owner`'s: its own, or as heir of `key` that of one who is gone."""


LOOKED_AT = 10_000
"""Rows that are looked at for work: none of others that live; each heir sees to some of the rest."""


class Share:
    def __init__(self, database: SqliteFile, members: Members) -> None:
        self._database = database
        self._members = members
        self._sql = load_queries()

    async def due(self, now: datetime) -> Iterable[str]:
        rows = await self._database.read(self._sql["due_of"], (microseconds(now), *self._whose, LOOKED_AT))
        return self._ours(rows)

    async def queued(self) -> Iterable[str]:
        return self._ours(await self._database.read(self._sql["queued_of"], (*self._whose, LOOKED_AT)))

    async def held(self) -> Iterable[str]:
        return self._ours(await self._database.read(self._sql["held_of"], self._whose))

    async def untold(self, reached: int) -> Sequence[Untold]:
        found: dict[str, list[int]] = {}
        for run_id, seq, by in await self._database.read(self._sql["untold_of"], (*self._whose, reached)):
            if self._members.mine(by, run_id):
                found.setdefault(run_id, []).append(seq)
        return [Untold(run_id=run_id, seqs=tuple(sorted(seqs))) for run_id, seqs in found.items()]

    def is_ours(self, run_id: str) -> bool:
        rows = self._database.look_up(self._sql["owned"], (run_id,))
        return any(self._members.mine(owner, run_id) for (owner,) in rows)

    @property
    def _whose(self) -> tuple[str, str]:
        me = self._members.me
        return me, json.dumps(sorted(self._members.live - {me}))

    def _ours(self, rows: Iterable[tuple[str, str]]) -> Iterable[str]:
        return (run_id for run_id, owner in rows if self._members.mine(owner, run_id))
