"""`ductile-gateway prune` forgets what is old and done, and nothing else."""

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.cli.pruning import prune
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, open_store
from ductile_gateway.store.ledger import SqliteLedger
from groundwork.service.errors import Misconfigured
from groundwork.service.process_lock import ProcessLock
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


def test_a_dry_run_tells_and_leaves_everything(settings: GatewaySettings, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(settings, capsys, dry_run=True)
    assert (found["rows"]["answers"], found["done"]) == (1, False)
    assert calls(settings) == 3


def test_old_answers_go_and_open_calls_stay(settings: GatewaySettings, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(settings, capsys)["done"]
    assert calls(settings) == 2
    assert told(settings, capsys)["rows"]["answers"] == 0


def test_a_gateway_at_work_is_left_to_do_it(settings: GatewaySettings, capsys: pytest.CaptureFixture[str]) -> None:
    with ProcessLock(settings.store):
        found = told(settings, capsys)
    assert not found["done"]
    assert "once an hour" in found["why_not"]
    assert calls(settings) == 3


def test_where_no_ledger_is_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="there is no ledger"):
        prune(GatewaySettings(store=tmp_path / "none"), dry_run=False, as_json=False)
    assert not (tmp_path / "none").exists()
