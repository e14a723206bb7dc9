"""The file that holds the ledger and all that the gateway remembers beside it."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ductile_gateway.status import look_at_store
from ductile_gateway.store import FILE, open_store
from ductile_gateway.store.ledger import SqliteLedger
from groundwork.service.errors import Misconfigured, TryAgain
from tests.gateway.parts import NOON, opened
from tests.ledger.test_ledger import an_answer, an_intent


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    async with opened(tmp_path, SqliteLedger) as stored:
        yield stored


async def test_more_old_answers_than_are_forgotten_at_once_are_all_forgotten(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    for step in range(1, 1203):
        ledger.intend_soon(an_intent(step))
    await ledger.answer(an_answer())
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("UPDATE calls SET answer = x'00', completed_at = 0, published = 1")
        connection.commit()
    await ledger.forget_before(NOON)
    assert await ledger.find(an_intent(1202).asked.key) is None


@pytest.mark.parametrize(("spoil", "told"), [("version", "newer"), ("content", FILE)])
async def test_a_file_of_a_newer_program_or_that_is_none_is_named_and_left_alone(
    tmp_path: Path, spoil: str, told: str
) -> None:
    if spoil == "content":
        (tmp_path / FILE).write_bytes(b"no database" * 100)
    else:
        with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
            connection.execute("PRAGMA user_version = 99")
    with pytest.raises(Misconfigured, match=told):
        async with open_store(tmp_path):
            pass


async def test_a_full_disk_is_logged_as_an_error_once_and_seen_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def limit(pages: str) -> Callable[[sqlite3.Connection], object]:
        return lambda connection: connection.execute(f"PRAGMA max_page_count={pages}").fetchone()

    def fill(connection: sqlite3.Connection) -> object:
        insert = "INSERT INTO artifacts (run_id, name, key, place) VALUES (?, 'a.md', 'key', 1)"
        return connection.execute(insert, ("x" * 100_000,))

    async with open_store(tmp_path) as file:
        await file.write(limit("1"))  # no more than there are
        for _ in range(2):
            with pytest.raises(TryAgain, match="no room"):
                await file.write(fill)
        (found,) = look_at_store(file.trouble, file.path.parent)
        assert (found.mark, "no room" in found.text) == ("wrong", True)
        await file.write(limit("1000000"))
        assert not any(found.mark == "wrong" for found in look_at_store(file.trouble, file.path.parent))
    ours = [record for record in caplog.records if record.name == "groundwork.sqlite.file"]
    assert [record.levelname for record in ours] == ["ERROR", "WARNING"]
