"""An agent that is drained loses no model call, and what it was at goes on after the next start."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2

from agent_service.store.sql.database import FILE
from agent_service.workbench.dev import DevStack
from tests.cli.calling import agentic
from tests.e2e.bodies import recording, running, to_the_end, wake
from tests.kit.waiting import until

THINKS_S = 3.0


def slow(file: Path) -> dict[str, Any]:
    """A script that takes its time to frame."""
    script = recording(file, steps=1)
    script["rules"][0] = {**script["rules"][0], "wait_s": THINKS_S}
    return script


def kinds(made: DevStack) -> list[str]:
    """Of all entries of the store, in their order."""
    with closing(sqlite3.connect(made.options.folder / "agent" / FILE)) as database:
        return [kind for (kind,) in database.execute("SELECT kind FROM journal ORDER BY position")]


async def thinking(made: DevStack) -> bool:
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
        return bool((await client.get("/v1/drain")).json()["model_calls"])


async def test_a_model_call_under_way_is_waited_for_and_the_run_goes_on_after_the_next_start(tmp_path: Path) -> None:
    async with running(tmp_path / "dev", slow(tmp_path / "marks" / "lines")) as made:
        run_id = await wake(made)
        await until(lambda: thinking(made))
        assert "ModelReplied" not in kinds(made)
        drained = await asyncio.to_thread(agentic, "drain", "--url", made.url, "--json")
        assert (drained.code, drained.document["model_calls"], drained.document["ended"]) == (0, 1, True)
        assert kinds(made).count("ModelReplied") == 1
        ended = await to_the_end(made, run_id)
    assert (ended["state"], made.agent.starts) == ("done", 2)
    assert (tmp_path / "marks" / "lines").read_text().count("\n") == 1
