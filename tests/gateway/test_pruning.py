"""`ductile-gateway prune` forgets what is old and done, and nothing else."""

import asyncio
import contextlib
import json
import os
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.cli.pruning import prune
from ductile_gateway.plugins.call_folder import CallFolders
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, open_store
from ductile_gateway.store.ledger import SqliteLedger
from ductile_gateway.store.stores import Stores
from ductile_gateway.tidying import Kept, Tidying
from tests.kit.fakes import FakeClock
from tests.ledger.test_ledger import an_answer, an_intent


async def filled(folder: Path) -> None:
    async with open_store(folder) as file:
        ledger = SqliteLedger(file)
        for step in range(1, 4):
            await ledger.intend(an_intent(step))
        await ledger.answer(an_answer())


@pytest.fixture
def settings(tmp_path: Path) -> GatewaySettings:
    """A ledger with one old answer that was told, and two calls that are open."""
    asyncio.run(filled(tmp_path))
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute("UPDATE calls SET completed_at = 1, published = 1 WHERE answer IS NOT NULL")
    return GatewaySettings(store=tmp_path)


def told(settings: GatewaySettings, capsys: pytest.CaptureFixture[str], *, dry_run: bool = False) -> dict[str, Any]:
    prune(settings, dry_run=dry_run, as_json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def calls(settings: GatewaySettings) -> int:
    with contextlib.closing(sqlite3.connect(settings.store / FILE)) as connection:
        ((number,),) = connection.execute("SELECT count(*) FROM calls")
        return int(number)


def test_old_answers_go_and_open_calls_stay(settings: GatewaySettings, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(settings, capsys)["done"]
    assert calls(settings) == 2
    assert told(settings, capsys)["rows"]["answers"] == 0


def test_a_folder_of_a_call_that_nobody_asks_for_any_more_goes_and_one_that_is_held_stays(
    settings: GatewaySettings, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = CallFolders(settings.store / "calls", boot_id="this one")
    with folders.publish("new", b"{}"), folders.publish("old", b"{}"), folders.publish("held", b"{}") as (held, lock):
        again = os.dup(lock.fileno())
    old = folders.folder("old")
    for folder in (old, held):
        os.utime(folder.path, (1, 1))
    assert told(settings, capsys, dry_run=True)["rows"]["call folders"] == 1
    assert told(settings, capsys)["rows"]["call folders"] == 1
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
        left = await file.read("SELECT min(step), max(step), count(*) FROM calls")
        assert left[0][0] == 1
        assert left[0][1] == left[0][2], "the oldest went"
        tight = Tidying(file, stores, replace(kept, most=1), FakeClock(now))
        await tight.tidy()
        assert await file.read("SELECT max(step) FROM calls") == [(5,)]
