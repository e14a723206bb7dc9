"""A program of an older version that is to take over from a newer one: it ends politely, and the newer goes on."""

import contextlib
import sqlite3
from pathlib import Path

from tests.e2e.agents import another_agent, another_gateway
from tests.e2e.bodies import recording, running, to_the_end, wake

NEWER = 99
"""A schema version that only a later program knows."""


async def test_an_older_program_refuses_the_store_of_a_newer_one_before_it_takes_over_from_it(tmp_path: Path) -> None:
    async with running(tmp_path / "stack", recording(tmp_path / "marks" / "lines", steps=1)) as made:
        for database in ("agent/runs.db", "gateway/ledger.db"):
            with contextlib.closing(sqlite3.connect(tmp_path / "stack" / database)) as connection:
                connection.execute(f"PRAGMA user_version = {NEWER}")
        pids = made.agent.pid, made.gateway.pid
        for start in (another_agent, another_gateway):
            async with start(made.config, "--take-over") as older:
                code, told = await older.ended()
            assert (code, "start the newer program that wrote it" in told) == (78, True), told
        ended = await to_the_end(made, await wake(made))
        assert (made.agent.pid, made.gateway.pid) == pids
    assert ended["state"] == "done"
