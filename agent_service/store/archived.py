"""What an archive holds of a store, and how it is stored anew: each run's entries are decided again, and appended.

    store ─▶ runs and their entries ─▶ archive ─▶ entries, decided again ─▶ facts ─▶ a database, or the log of many

A log holds what is there already as it is, so that an interrupted restore is finished by the same command.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Any

from agent_service.archive.runs import ArchivedRun, Said
from agent_service.run.changes import retell
from agent_service.run.in_hand import own_turn
from agent_service.run.journal import Commit, Entry, flaw_in_chain, growth_of
from agent_service.store.retention import SqliteGraves
from agent_service.store.rows import rows_of
from agent_service.store.shared_log.applying import Applying, Skipped
from agent_service.store.shared_log.facts import VERSION, Buried, EntryFact, GoneFact, HaltFact, SeenFact
from agent_service.store.shared_log.ports import Log
from agent_service.store.side_tables import halt_of
from agent_service.store.sql.database import load_queries
from agent_service.store.sqlite import SqliteStore
from groundwork.nats.publishing import StoredMessage
from groundwork.nats.shared_log import Moved
from groundwork.service.errors import Misconfigured
from groundwork.service.machine import utc_now
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from schemas import subjects

AT_ONCE = 500
TOGETHER = 32
"""Runs whose entries are on their way to a log at the same time."""


async def stored_runs(database: SqliteFile, *, only: str = "") -> AsyncIterator[ArchivedRun]:
    """By id; all, or `only` that one."""
    sql, after = load_queries()["archived"], ""
    while rows := await database.read(sql, (after, AT_ONCE, only or None)):
        for row in rows:
            yield _run(*row)
        after = rows[-1][0]


def _run(run_id: str, wake_id: str, digest: str, accepted_at: int, *rest: Any) -> ArchivedRun:
    status, version, head, told, positions, artifacts_gone = rest
    return ArchivedRun(
        run_id=run_id,
        wake_id=wake_id,
        digest=digest,
        accepted_at=instant(accepted_at),
        status=status,
        version=version,
        head=head.hex(),
        dispatched_up_to=told,
        positions=tuple(map(int, filter(None, (positions or "").split(",")))),
        artifacts_gone=artifacts_gone or "",
    )


async def beside_runs(database: SqliteFile) -> list[Said]:
    """Dismissals, stops of all, tombstones, and which artifacts were deleted."""
    sql = load_queries()
    said: list[Said] = []
    for run_id, version, person, at in await database.read(sql["all_dismissals"]):
        seen = SeenFact(v=VERSION, by="", run_id=run_id, version=version, person=person, at=at)
        said.append((subjects.stored_seen(run_id), seen.encoded()))
    halts = [HaltFact(v=VERSION, by="", halt=halt_of(row)) for row in await database.read(sql["all_halts"])]
    said += [(subjects.STORED_HALT, halt.encoded()) for halt in halts]
    for run_id, version, rule, at in await database.read(sql["all_artifacts_gone"]):
        gone = GoneFact(v=VERSION, by="", runs={}, artifacts={run_id: version}, rule=rule, at=at)
        said.append((subjects.STORED_GONE, gone.encoded()))
    async for stone in SqliteGraves(database).every():
        buried = GoneFact(
            v=VERSION,
            by="",
            runs={stone.run_id: (0, stone.wake_id)},
            tombstones=(Buried.of(stone, "[]"),),
        )
        said.append((subjects.STORED_GONE, buried.encoded()))
    return said


def flaw_of(run: ArchivedRun, entries: Sequence[Entry]) -> str | None:
    if flaw := flaw_in_chain(entries):
        return flaw
    is_whole = entries and (len(entries), entries[-1].hash) == (run.version, run.head)
    return None if is_whole else f"its journal does not end with entry {run.version}"


def facts_of(run: ArchivedRun, entries: Sequence[Entry]) -> list[EntryFact]:
    """The newest has all that grew. Those not fully dispatched are of one turn, which an agent queues. Raises
    ValueError, with what is wrong, for entries that cannot be followed, or that are not those of the run."""
    if flaw := flaw_of(run, entries):
        raise ValueError(flaw)
    wake = run.wake_id, run.digest, microseconds(run.accepted_at)
    facts = list[EntryFact]()
    for change in retell(entries):
        first, newest = change.entry.seq == 1, change.entry.seq == run.version
        commit = Commit(
            entry=change.entry,
            facts=change.facts,
            state=change.after,
            brief=change.after.brief if first or newest else None,
            growth=growth_of(None, change.after) if newest else (),
            paid_usd=change.paid_usd,
            opened=change.opened,
        )
        told = run.dispatched_up_to if newest else 0
        by = own_turn(run.run_id, run.version) if change.entry.seq > run.dispatched_up_to else ""
        caller, asked = change.after.brief.caller, wake if first else None
        facts.append(EntryFact.of(rows_of(commit), by=by, caller=caller, told=told, asked=asked))
    return facts


class IntoDatabase:
    """The caller alone has the database open."""

    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._applying = Applying()
        self._some: list[StoredMessage] = []

    async def add(self, run: ArchivedRun, entries: Sequence[Entry]) -> None:
        """Raises ValueError as `facts_of` does."""
        for fact, position in zip(facts_of(run, entries), run.positions, strict=True):
            self._some.append(_fact(position, fact.subject, fact.encoded()))
        if len(self._some) >= AT_ONCE:
            await self.write()

    async def add_beside(self, said: Iterable[Said]) -> None:
        self._some += [_fact(0, subject, body) for subject, body in said]
        await self.write()

    async def write(self) -> None:
        some, self._some = self._some, []
        await self._database.write(partial(self._apply, some))

    def _apply(self, some: Sequence[StoredMessage], connection: sqlite3.Connection) -> None:
        for fact in some:
            self._applying.apply(connection, fact)
            if isinstance(outcome := self._applying.outcome(fact), Skipped):
                raise Misconfigured(f"{fact.subject} cannot be restored: {outcome.why}")


def _fact(position: int, subject: str, body: bytes) -> StoredMessage:
    return StoredMessage(seq=position, subject=subject, body=body, headers={}, at=utc_now())


class IntoLog:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._some: list[list[EntryFact]] = []

    async def add(self, run: ArchivedRun, entries: Sequence[Entry]) -> None:
        """Raises ValueError as `facts_of` does, Misconfigured where the log has another run, and TryAgain."""
        self._some.append(facts_of(run, entries))
        if len(self._some) >= TOGETHER:
            await self.write()

    async def write(self) -> None:
        some, self._some = self._some, []
        await asyncio.gather(*map(self._append_run, some))

    async def add_beside(self, said: Iterable[Said]) -> None:
        for subject, body in said:
            if subject == subjects.STORED_GONE:
                gone = GoneFact.model_validate_json(body)
                stones = tuple(stone.model_copy(update={"last": 0}) for stone in gone.tombstones)
                body = gone.model_copy(update={"tombstones": stones}).encoded()  # noqa: PLW2901 - no positions of a log
            await self._append(subject, body, None)

    async def _append_run(self, facts: Sequence[EntryFact]) -> None:
        there, place = await self._newest(facts[0])
        if there and (there.seq > len(facts) or there.hash != facts[there.seq - 1].hash):
            raise Misconfigured(f"the log has another entry {there.seq} of {facts[0].subject}: use a stream made anew")
        for fact in facts[there.seq if there else 0 :]:
            position = await self._append(fact.subject, fact.encoded(), place)
            place = position if fact.seq > 1 else 0

    async def _newest(self, first: EntryFact) -> tuple[EntryFact | None, int]:
        """The newest entry of the run that is there, and the position that the next follows on."""
        for subject in (subjects.stored_run(first.run_id), first.subject):
            if found := await self._log.newest(subject):
                there = EntryFact.model_validate_json(found.body)
                return there, found.seq if there.seq > 1 else 0
        return None, 0

    async def _append(self, subject: str, body: bytes, after: int | None) -> int:
        try:
            return await self._log.append(subject, body, after=after)
        except Moved as error:
            raise Misconfigured(
                f"another process writes to {subject}: stop all agents that share this store, then run this again"
            ) from error


async def copy_into_log(log: Log, database: SqliteFile) -> None:
    """All that is in the database. Raises as IntoLog does."""
    into, store = IntoLog(log), SqliteStore(database)
    async for run in stored_runs(database):
        await into.add(run, await store.entries(run.run_id))
    await into.write()
    await into.add_beside(await beside_runs(database))
