"""Retention in the gateway's database, and errors of a database that cannot be used."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.plugins.call_record import CallRecords
from ductile_gateway.retention import Retention
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.status import store_findings
from ductile_gateway.store import FILE
from groundwork.service.errors import TryAgain
from tests.gateway.parts import RUN
from tests.kit.fakes import still
from tests.ledger.kit import an_answer, an_artifact, an_open_call, embedded

STEP = "json_extract(head, '$.step')"


def look(folder: Path, *statements: str) -> Any:
    """First row of the last of these statements."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection, connection:
        return [connection.execute(statement).fetchone() for statement in statements][-1]


async def test_a_full_disk_is_logged_as_an_error_once_and_seen_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def limit(pages: str) -> Callable[[sqlite3.Connection], object]:
        return lambda connection: connection.execute(f"PRAGMA max_page_count={pages}").fetchone()

    def fill(connection: sqlite3.Connection) -> object:
        insert = "INSERT INTO rows (subject, seq, head, body) VALUES ('one', 1, '{}', ?)"
        return connection.execute(insert, (b"x" * 100_000,))

    async with embedded(tmp_path)() as stores:
        file = stores.rows.carrier.file
        await file.write(limit("1"))  # no more than there are
        for _ in range(2):
            with pytest.raises(TryAgain, match="no room"):
                await file.write(fill)
        (found,) = store_findings(file.trouble, tmp_path)
        assert (found.mark, "no room" in found.text) == ("wrong", True)
        await file.write(limit("1000000"))
        assert not any(found.mark == "wrong" for found in store_findings(file.trouble, tmp_path))
    ours = [record.levelname for record in caplog.records if record.name == "groundwork.sqlite.group_commit"]
    assert ours == ["ERROR", "WARNING"]


async def test_old_answers_and_folders_that_nobody_asks_for_go_and_what_is_open_or_held_stays(tmp_path: Path) -> None:
    async with embedded(tmp_path)() as stores:
        for step in range(1, 4):
            await stores.ledger.intend(begun := an_open_call(step))
        await stores.ledger.answer(replace(an_answer(), at=datetime(1970, 1, 1, tzinfo=UTC)))
        tidying = Retention(stores.rows, GatewaySettings(store=tmp_path))

        async def pruned(*, dry_run: bool = False) -> tuple[int, int]:
            rows = (await tidying.prune(dry_run)).rows
            return rows["answers"], rows["call folders"]

        records = CallRecords(tmp_path / "calls", boot_id="this one")
        with records.create("new", b"{}"), records.create("old", b"{}"), records.create("held", b"{}") as held:
            again = os.dup(held[1])
        with records.create(begun.key, b"{}") as (open_one, _):
            pass
        for record in (records.of("old"), held[0], open_one):
            os.utime(record.path, (1, 1))
        assert [await pruned(dry_run=True), await pruned(), await pruned()] == [(1, 1), (1, 1), (0, 0)]
    assert look(tmp_path, "SELECT count(*) FROM rows") == (2,)
    os.close(again)
    kept = [records.of(key).path.exists() for key in ("new", "held", begun.key, "old")]
    assert kept == [True, True, True, False], "without its record a write that was begun would be made again"


async def test_while_the_ledger_takes_too_much_the_oldest_answers_go_and_those_of_the_last_day_stay(
    tmp_path: Path,
) -> None:
    now = still(datetime(2026, 11, 21, tzinfo=UTC)).now()
    async with embedded(tmp_path)() as stores:
        file = stores.rows.carrier.file
        for number in range(60):
            at = now - timedelta(days=number / 4)
            await stores.ledger.answer(replace(an_answer(number + 1), at=at, body=b"x" * 40_000))
        wanted = [(made := an_artifact(b"its content"), ["a.md"])]
        await stores.ledger.name_artifacts(RUN, "a call", wanted, at=now - timedelta(days=5))
        settings = GatewaySettings(store=tmp_path, ledger_mb=1)
        tidying = Retention(stores.rows, settings)
        assert (await tidying.would_go())["answers"] > 0
        assert (await tidying.tidy())["answers"] > 0
        assert await file.used() <= 1 << 20
        ((first, last, number),) = await file.read(f"SELECT min({STEP}), max({STEP}), count({STEP}) FROM rows")  # noqa: S608 - ours
        assert (first, last) == (1, number), "the oldest went"
        await Retention(stores.rows, settings.model_copy(update={"ledger_mb": 0})).tidy()
        assert await file.read(f"SELECT max({STEP}) FROM rows") == [(5,)]  # noqa: S608 - ours
        assert await stores.ledger.digest_of(RUN, "a.md") == made.sha256
