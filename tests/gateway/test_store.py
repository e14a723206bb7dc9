"""The gateway's file: what is old and done is forgotten, nothing else, and a file that cannot be used says so."""

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.cli.pruning import prune
from ductile_gateway.plugins.call_folder import CallFolders
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.status import look_at_store
from ductile_gateway.store import FILE, open_store
from ductile_gateway.store.ledger import SqliteLedger
from ductile_gateway.store.stores import Stores
from ductile_gateway.tidying import Kept, Tidying
from groundwork.service.errors import TryAgain
from tests.gateway.parts import opened
from tests.kit.fakes import FakeClock
from tests.ledger.kit import an_answer, an_intent


def look(folder: Path, *statements: str) -> Any:
    """What the last of these statements finds first in the file."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection, connection:
        return [connection.execute(statement).fetchone() for statement in statements][-1]


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
        (found,) = look_at_store(file.trouble, tmp_path)
        assert (found.mark, "no room" in found.text) == ("wrong", True)
        await file.write(limit("1000000"))
        assert not any(found.mark == "wrong" for found in look_at_store(file.trouble, tmp_path))
    ours = [record.levelname for record in caplog.records if record.name == "groundwork.sqlite.file"]
    assert ours == ["ERROR", "WARNING"]


def test_old_answers_and_folders_that_nobody_asks_for_go_and_what_is_open_or_held_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def kept() -> None:
        async with opened(tmp_path, SqliteLedger) as ledger:
            for step in range(1, 4):
                await ledger.intend(an_intent(step))
            await ledger.answer(an_answer())

    asyncio.run(kept())
    look(tmp_path, "UPDATE calls SET completed_at = 1, published = 1 WHERE answer IS NOT NULL")
    settings = GatewaySettings(store=tmp_path)

    def pruned(*, dry_run: bool = False) -> tuple[int, int]:
        prune(settings, dry_run=dry_run, as_json=True)
        rows = json.loads(capsys.readouterr().out)["rows"]
        return rows["answers"], rows["call folders"]

    folders = CallFolders(settings.store / "calls", boot_id="this one")
    with folders.publish("new", b"{}"), folders.publish("old", b"{}"), folders.publish("held", b"{}") as (held, lock):
        again = os.dup(lock.fileno())
    for folder in (folders.folder("old"), held):
        os.utime(folder.path, (1, 1))
    assert [pruned(dry_run=True), pruned(), pruned()] == [(1, 1), (1, 1), (0, 0)]
    assert look(settings.store, "SELECT count(*) FROM calls") == (2,)
    os.close(again)
    assert set(folders.keys()) == {"new", "held"}


async def test_while_the_ledger_takes_too_much_the_oldest_answers_go_and_those_of_the_last_day_stay(
    tmp_path: Path,
) -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    async with open_store(tmp_path) as file:
        stores = Stores.embedded(file, folder=tmp_path, run_bytes=1)
        for number in range(60):
            at = now - timedelta(days=number / 4)
            answer = replace(an_answer(number + 1), completed_at=at, body=b"x" * 40_000)
            await stores.ledger.answer(answer)
            stores.ledger.published(answer.key)
        kept = Kept(answers=timedelta(days=30), events=timedelta(days=30), most=1 << 20, calls=tmp_path / "calls")
        tidying = Tidying(file, stores, kept, FakeClock(now))
        assert (await tidying.would_go())["answers"] > 0
        assert (await tidying.tidy())["answers"] > 0
        assert await file.used() <= 1 << 20
        ((first, last, number),) = await file.read("SELECT min(step), max(step), count(*) FROM calls")
        assert (first, last) == (1, number), "the oldest went"
        await Tidying(file, stores, replace(kept, most=1), FakeClock(now)).tidy()
        assert await file.read("SELECT max(step) FROM calls") == [(5,)]
