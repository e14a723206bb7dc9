"""What the texts of many runs have in common is stored once, and they are read to the letter as they were written."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from agent_service.core.events import RunStarted
from agent_service.run.journal import Commit
from agent_service.store.database import FILE
from agent_service.store.sqlite import RunStore
from schemas.catalog import ToolOffer
from tests.kit.runs import SEARCH, SECOND, accepted, after, run_id, started
from tests.ports.stores import as_loaded, stored

TOOLS: Sequence[ToolOffer] = tuple(
    SEARCH.model_copy(update={"name": f"search-{number}", "description": f'Söker på nätet 🎉 "{number}". ' * 20})
    for number in range(9)
)


def begun(number: int, tools: Sequence[ToolOffer] = TOOLS) -> list[Commit]:
    """A run that has been told its tools."""
    first = accepted(number)
    return [first, after(first, RunStarted(at=first.entry.at + SECOND, skills=tuple(tools)))]


async def test_common_texts_are_stored_once_and_entries_and_states_are_read_to_the_letter(tmp_path: Path) -> None:
    runs = [begun(1), begun(2), begun(3, TOOLS[:4]), [accepted(4), started(accepted(4))]]
    async with RunStore.open(tmp_path) as store:
        for commits in runs:
            await stored(store, commits)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        ((texts, length),) = connection.execute("SELECT count(*), max(length(text)) FROM common_texts")
        ((longest,),) = connection.execute("SELECT max(length(event)) FROM journal WHERE run_id <> ?", (run_id(4),))
    assert (texts, longest < length / 3) == (2, True)
    async with RunStore.open(tmp_path) as store:
        for commits in runs:
            assert await store.entries(commits[0].entry.run_id) == [commit.entry for commit in commits]
            assert await store.load(commits[0].entry.run_id) == as_loaded(commits[-1])
