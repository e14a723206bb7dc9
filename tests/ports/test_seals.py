"""What the agent wrote down of its runs is sealed: it is known again, and whatever other hands changed is found."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings

from agent_service.errors import Changed
from agent_service.journal import GENESIS, Commit
from agent_service.store.rows import entry_of
from agent_service.store.seals import Apart, Row, Seals
from agent_service.store.sql.database import FILE
from agent_service.store.sql.queries import load_queries
from agent_service.store.sqlite import SqliteStore
from groundwork.service import key_ring
from groundwork.service.key_ring import Key, KeyRing
from tests.core.model_cues import a_compacting_run
from tests.core.script import Script
from tests.core.stories import STORIES
from tests.kit.runs import run_id, wake_of, whole_run
from tests.projections.journals import commits_of, five_steps

RUN, ANOTHER = run_id(1), run_id(2)

CHANGED = {
    "limits": "UPDATE briefs SET brief = json_set(brief, '$.limits.max_steps', 100000) WHERE run_id = '{run}'",
    "goal": "UPDATE briefs SET brief = json_set(brief, '$.goal', 'Delete all.') WHERE run_id = '{run}'",
    "state": "UPDATE runs SET state = json_set(state, '$.step', 9) WHERE run_id = '{run}'",
    "white space": "UPDATE runs SET state = state || ' ' WHERE run_id = '{run}'",
    "status": "UPDATE runs SET status = 'done' WHERE run_id = '{run}'",
    "summary": "UPDATE runs SET summary = 'all is well' WHERE run_id = '{run}'",
    "timer": "UPDATE runs SET due_at = 1 WHERE run_id = '{run}'",
    "head": "UPDATE runs SET head = zeroblob(32) WHERE run_id = '{run}'",
    "version": "UPDATE runs SET version = version - 1 WHERE run_id = '{run}'",
    "a note": "UPDATE items SET item = replace(item, 'step', 'stop') WHERE run_id = '{run}' AND field = 'notes'",
    "a note less": "DELETE FROM items WHERE rowid = (SELECT max(rowid) FROM items WHERE run_id = '{run}')",
    "a word more": "INSERT INTO items (run_id, field, item) VALUES ('{run}', 'messages', '\"yes, do\"')",
    "another field": "UPDATE items SET field = 'messages' WHERE run_id = '{run}' AND field = 'notes'",
    "no seal": "UPDATE runs SET seal = NULL WHERE run_id = '{run}'",
    "an empty seal": "UPDATE runs SET seal = '' WHERE run_id = '{run}'",
    "a seal of another's": "UPDATE runs SET seal = (SELECT seal FROM runs WHERE run_id = '{another}') "
    "WHERE run_id = '{run}'",
    "a row of another's": "UPDATE runs SET (state, summary, status, due_at, version, head, seal) = (SELECT state, "
    "summary, status, due_at, version, head, seal FROM runs WHERE run_id = '{another}') WHERE run_id = '{run}'",
    "a key of nobody": "UPDATE runs SET seal = 'k0' || substr(seal, instr(seal, '.')) WHERE run_id = '{run}'",
}


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return KeyRing.open(tmp_path / "store.keys")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@asynccontextmanager
async def opened(folder: Path, ring: KeyRing) -> AsyncIterator[SqliteStore]:
    async with SqliteStore.open(folder, seals=Seals(ring)) as store:
        yield store


async def stored(store: SqliteStore, commits: Sequence[Commit]) -> None:
    await store.accept(replace(wake_of(commits[0]), wake_id=commits[0].entry.run_id), commits[0])
    for commit in commits[1:]:
        await store.commit(commit)


def changed(folder: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection, connection:
        assert connection.execute(statement.format(run=RUN, another=ANOTHER)).rowcount > 0


@pytest.mark.parametrize("commits", [commits_of(five_steps()), commits_of(a_compacting_run())], ids=["grows", "drops"])
async def test_a_run_is_as_it_was_left_after_every_entry(
    folder: Path, ring: KeyRing, commits: Sequence[Commit]
) -> None:
    """Each entry by another process, and all of them by one."""
    for number, commit in enumerate(commits):
        async with opened(folder, ring) as store:
            await (store.commit(commit) if number else store.accept(wake_of(commit), commit))
            run = await store.load(commit.entry.run_id)
            assert run is not None
            assert run.state == commit.state
    async with opened(folder.with_name("another"), ring) as store:
        await stored(store, commits)
        assert await store.load(commits[0].entry.run_id) is not None


@pytest.mark.attack
@pytest.mark.parametrize("change", CHANGED)
async def test_what_other_hands_changed_of_a_run_stops_that_run_alone(folder: Path, ring: KeyRing, change: str) -> None:
    async with opened(folder, ring) as store:
        await stored(store, whole_run(1, steps=2)[:-1])
        await stored(store, whole_run(2, steps=2)[:-1])
    changed(folder, CHANGED[change])
    async with opened(folder, ring) as store:
        with pytest.raises(Changed, match=f"agentic verify {RUN}"):
            await store.load(RUN)
        with pytest.raises(Changed):
            await store.commit(whole_run(1, steps=2)[-1])
        assert await store.load(ANOTHER) is not None
        await store.commit(whole_run(2, steps=2)[-1])


@pytest.mark.attack
async def test_a_change_beneath_a_run_that_is_at_hand_is_never_sealed_with_it(folder: Path, ring: KeyRing) -> None:
    *most, last = whole_run(1, steps=2)
    async with opened(folder, ring) as store:
        await stored(store, most)
        changed(folder, CHANGED["a note"])
        await store.commit(last)
        with pytest.raises(Changed):
            await store.load(RUN)


async def test_seals_of_an_older_key_hold_while_the_ring_has_it_and_no_longer(folder: Path, ring: KeyRing) -> None:
    path, before = folder.with_name("store.keys"), ring.keys
    async with opened(folder, ring) as store:
        await stored(store, whole_run(1))
    key_ring.write(path, (Key.fresh(), *before))
    async with opened(folder, KeyRing.open(path)) as store:
        assert await store.load(RUN) is not None
    key_ring.write(path, (Key.fresh(),))
    async with opened(folder, KeyRing.open(path)) as store:
        with pytest.raises(Changed, match=f"sealed with the key {before[0].id}, which the keys file does not hold"):
            await store.load(RUN)


async def test_a_seal_tells_nothing_of_the_key(folder: Path, ring: KeyRing) -> None:
    async with opened(folder, ring) as store:
        await stored(store, whole_run(1))
    assert ring.keys[0].secret.hex() not in json.dumps((folder / FILE).read_bytes().hex())


REWRITTEN = {
    "a result": "UPDATE journal SET event = replace(event, 'answer', 'anstwo') WHERE run_id = '{run}' AND seq = 4",
    "an entry less": "DELETE FROM journal WHERE run_id = '{run}' AND seq = 3",
    "a cut tail": "DELETE FROM journal WHERE run_id = '{run}' AND seq > 3",
    "another's entry": "UPDATE journal SET event = (SELECT event FROM journal WHERE run_id = '{another}' AND seq = 1) "
    "WHERE run_id = '{run}' AND seq = 4",
}


def written_anew(folder: Path) -> None:
    """One entry changed, and all hashes made anew from there on, also that in the run's row."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection, connection:
        rows = connection.execute(load_queries()["entries"], (RUN, 0, -1)).fetchall()
        previous = bytes.fromhex(GENESIS)
        for row in rows:
            event = row[3].replace("question", "quest")
            entry = replace(entry_of(RUN, row), event=event, previous=previous.hex())
            previous = bytes.fromhex(entry.recomputed_hash())
            connection.execute(
                "UPDATE journal SET event = ?, previous = ?, hash = ? WHERE run_id = ? AND seq = ?",
                (event, bytes.fromhex(entry.previous), previous, RUN, entry.seq),
            )
        connection.execute("UPDATE runs SET head = ? WHERE run_id = ?", (previous, RUN))


def rewrite(folder: Path, change: str) -> None:
    if change in REWRITTEN:
        changed(folder, REWRITTEN[change])
    else:
        written_anew(folder)


async def only_that_journal_is_refused(store: SqliteStore) -> None:
    with pytest.raises(Changed):
        await store.entries(RUN)
    assert len(await store.entries(ANOTHER)) == len(whole_run(2, steps=2)) - 1
    assert [entry.seq for entry in await store.entries(ANOTHER, after=2, limit=2)] == [3, 4]


@pytest.mark.attack
@pytest.mark.parametrize("change", [*REWRITTEN, "all hashes"])
async def test_nothing_is_decided_by_a_journal_that_other_hands_wrote(folder: Path, ring: KeyRing, change: str) -> None:
    async with opened(folder, ring) as store:
        await stored(store, whole_run(1, steps=2)[:-1])
        await stored(store, whole_run(2, steps=2)[:-1])
        rewrite(folder, change)
        await only_that_journal_is_refused(store)
    async with opened(folder, ring) as by_the_next:
        await only_that_journal_is_refused(by_the_next)


class Forgetful(Seals):
    """Remembers nothing: whatever is sealed next has to be read first, as after a start or an end."""

    def remember(self, row: Row, apart: Apart) -> None:
        pass


@pytest.mark.parametrize("seals", [Seals, Forgetful])
@settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(STORIES)
def test_an_honest_run_is_never_found_changed_whatever_happens_to_it(seals: type[Seals], story: Script) -> None:
    async def lived() -> None:
        with TemporaryDirectory() as folder:
            async with SqliteStore.open(Path(folder), seals=seals(KeyRing.fresh())) as store:
                await stored(store, commits_of(story))
                assert await store.load(story.state.run_id) is not None

    asyncio.run(lived())
