"""A database of an earlier version: its runs are as they were, and what its outbox held is said once."""

import contextlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from agent_service.core.waiting import Status
from agent_service.errors import Damaged
from agent_service.journal import rehearse
from agent_service.lines import line_of
from agent_service.store.sqlite import SqliteStore
from schemas import subjects
from schemas.envelope import without_capability
from tests.samples import samples
from tests.shell.world import World

(DUMP,) = samples("untold.sql")
"""One run that was told in full; one queued, one asking a tool, one cancelled and one thinking that were not."""
SAID_IN_VAIN = ":run_00000000000000000000000004:step:1:request"
"""Of the run that was cancelled meanwhile."""


def outbox(path: Path) -> list[tuple[str, str, str]]:
    """Subject, key and body of each message that is still to be said."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT effects FROM outbox ORDER BY position").fetchall()
    effects = [effect for (row,) in rows for name, effect in json.loads(row) if name == "Publish"]
    return [(effect["subject"], effect["key"], effect["body"]) for effect in effects]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        connection.executescript(DUMP.read_text())
    return tmp_path


async def test_what_an_earlier_version_had_not_said_is_said_word_for_word_and_once(folder: Path) -> None:
    owed = outbox(folder / "runs.db")
    async with SqliteStore.open(folder) as store:
        world = World(store=store)
        await world.resume()
        said = {key: delivery.body.decode() for key, delivery in world.bus.published.items()}
        for subject, key, body in owed:
            if subject in (subjects.PROGRESS, subjects.WAKE_ACCEPTED):
                assert world.bus.told.count(key) == 1
            elif not key.endswith(SAID_IN_VAIN):
                assert without_capability(said[key].encode()).decode() == body
        assert not any(key.endswith(SAID_IN_VAIN) for key in said)
        assert not any("run_00000000000000000000000001" in key for key in (*said, *world.bus.told))


async def test_runs_of_an_earlier_version_are_what_their_journals_fold_to(folder: Path) -> None:
    async with SqliteStore.open(folder) as store:
        lines = await store.runs(limit=10)
        assert len(lines) == 5
        for line in lines:
            folded = [transition.state for _, transition in rehearse(await store.entries(line.run_id))]
            run = await store.load(line.run_id)
            assert run is not None
            assert folded[-1] is not None
            assert replace(run.state, notes=()) == replace(folded[-1], notes=()), (
                "notes keep the words of their version"
            )
            assert line == line_of(run.state)


async def test_a_run_of_an_earlier_version_whose_state_is_damaged_stops_no_other(folder: Path) -> None:
    damaged, sound = "run_00000000000000000000000003", "run_00000000000000000000000004"
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as connection, connection:
        connection.execute("UPDATE runs SET state = substr(state, 1, 40) WHERE run_id = ?", (damaged,))
    async with SqliteStore.open(folder) as store:
        with pytest.raises(Damaged):
            await store.load(damaged)
        assert await store.load(sound) is not None


async def test_runs_of_an_earlier_version_end_and_owe_nothing_then(folder: Path) -> None:
    async with SqliteStore.open(folder) as store:
        world = World(store=store)
        await world.resume()
        await world.until_quiet()
        counts = await store.counts()
        assert {status: runs for status, runs in counts.items() if runs} == {Status.DONE: 4, Status.CANCELLED: 1}
        world.faulty.write_told()
    async with SqliteStore.open(folder) as again:
        assert await again.untold(10) == []
