"""What the texts of many runs have in common is stored once, and they are read to the letter as they were written."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from agent_service.core.events import RunStarted
from agent_service.journal import Commit
from agent_service.store.common_texts import BEGINS, SHORTEST, CommonTexts
from agent_service.store.sql.database import FILE
from agent_service.store.sql.queries import load_queries
from agent_service.store.sqlite import SqliteStore
from schemas.catalog import ToolOffer
from tests.kit.runs import SEARCH, SECOND, accepted, after, started, wake_of

TOOLS: Sequence[ToolOffer] = tuple(
    SEARCH.model_copy(update={"name": f"search-{number}", "description": "Söker på nätet. " * 20})
    for number in range(9)
)


def begun(number: int, tools: Sequence[ToolOffer] = TOOLS) -> list[Commit]:
    """A run that has been told its tools."""
    first = accepted(number)
    return [first, after(first, RunStarted(at=first.entry.at + SECOND, skills=tuple(tools)))]


async def stored(store: SqliteStore, *runs: list[Commit]) -> None:
    for first, *rest in runs:
        await store.accept(wake_of(first), first)
        for commit in rest:
            await store.commit(commit)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE common_texts (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, text TEXT)")
        yield connection


async def test_the_tools_of_a_thousand_runs_take_the_room_of_one(tmp_path: Path) -> None:
    async with SqliteStore.open(tmp_path) as store:
        await stored(store, *map(begun, range(1, 6)))
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        ((texts, length),) = connection.execute("SELECT count(*), max(length(text)) FROM common_texts")
        ((longest,),) = connection.execute("SELECT max(length(event)) FROM journal")
    assert texts == 1
    assert longest < length / 3


async def test_entries_and_states_are_read_to_the_letter(tmp_path: Path) -> None:
    runs = [begun(1), begun(2), begun(3, TOOLS[:4]), [accepted(4), started(accepted(4))]]
    async with SqliteStore.open(tmp_path / "store") as store:
        await stored(store, *runs)
    async with SqliteStore.open(tmp_path / "store") as store:
        for commits in runs:
            assert await store.entries(commits[0].entry.run_id) == [commit.entry for commit in commits]
            run = await store.load(commits[0].entry.run_id)
            assert run is not None
            assert run.state == commits[-1].state


@given(
    some.text(),
    some.lists(some.text(min_size=50), max_size=30),
    some.text(),
)
def test_what_is_cut_out_and_what_is_left_are_the_whole(before: str, items: list[str], after: str) -> None:
    text = json.dumps({"before": before, "skills": items, "after": after}, ensure_ascii=False, separators=(",", ":"))
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE common_texts (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, text TEXT)")
        cut = CommonTexts(load_queries()).cut(text, connection)
        rows = connection.execute("SELECT text FROM common_texts").fetchall()
    json.loads(cut.rest)
    assert (cut.after is None) == (len(json.dumps(items, ensure_ascii=False, separators=(",", ":"))) - 2 < SHORTEST)
    if cut.after is None:
        assert cut.rest == text
    else:
        place = len(cut.rest) - cut.after
        assert cut.rest[:place] + rows[0][0] + cut.rest[place:] == text


@pytest.mark.parametrize("text", ["", "{", BEGINS, BEGINS + "1" * 600, '{"skills":[' + '"x",' * 400])
def test_what_is_no_json_is_stored_as_it_is(connection: sqlite3.Connection, text: str) -> None:
    assert CommonTexts(load_queries()).cut(text, connection) == (text, None, None)
