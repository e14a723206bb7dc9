"""What the bus was told shows which runs were removed or written anew; and others on the machine read no file."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent_service.cli.archive.verifying import verify_all
from tests.e2e.by_hand import Bench, bench, one_step
from tests.kit.waiting import until


def changed(folder: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(folder / "agent" / "runs.db", timeout=10)) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


async def asks(made: Bench, *names: str) -> list[dict[str, object]]:
    """The requests of new runs, which wait for their tool then."""
    run_ids = [(await made.wake(name)).json()["run_id"] for name in names]
    await until(lambda: {*run_ids} <= {request["run_id"] for request in made.requests})
    return [next(request for request in made.requests if request["run_id"] == run_id) for run_id in run_ids]


async def ended(made: Bench, *names: str) -> Sequence[str]:
    requests = await asks(made, *names)
    for request in requests:
        await made.answer(request)
    return [str((await made.ended(str(request["run_id"])))["run_id"]) for request in requests]


@pytest.mark.attack
async def test_a_run_that_was_removed_or_written_anew_is_told_by_the_bus(tmp_path: Path) -> None:
    config = tmp_path / "agentic.yaml"
    async with bench(tmp_path, one_step("look")) as made:
        removed, rewritten, sound = await ended(made, "removed", "rewritten", "sound")
        await made.here.stop()
        assert (await verify_all(config, against_bus=True)).ok
        for table in ("items", "briefs", "journal", "runs"):
            changed(tmp_path, f"DELETE FROM {table} WHERE run_id = ?", removed)  # noqa: S608 - one of four
        changed(
            tmp_path, "UPDATE journal SET hash = zeroblob(32) WHERE run_id = ? AND kind = 'ModelReplied'", rewritten
        )
        told = await verify_all(config, against_bus=True)
        of_the_bus = [flaw.text for flaw in told.flaws if flaw.place == "bus"]
        assert any(removed in text and "is not there any more" in text for text in of_the_bus)
        assert any(rewritten in text and "another entry is there now" in text for text in of_the_bus)
        assert not any(sound in text for text in of_the_bus)
        assert [run.run_id for run in told.flawed] == [rewritten]


def open_to_others(folder: Path) -> list[str]:
    """What others than this user may read or change, of what an agent keeps."""
    kept = [folder / "agent", folder / "workspaces", *folder.glob("agent*/*"), *folder.glob("agent.keys*")]
    kept += (folder / "workspaces").rglob("*")
    return [path.name for path in kept if path.stat().st_mode & 0o077]


@pytest.mark.attack
async def test_nobody_else_on_the_machine_reads_what_the_agent_keeps_also_where_it_could_before(tmp_path: Path) -> None:
    for name in ("agent", "workspaces"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "agent" / "runs.db").touch()
    (tmp_path / "agent" / "runs.db").chmod(0o644)
    async with bench(tmp_path, one_step("look")) as made:
        (run_id,) = await ended(made, "one")
        await until((tmp_path / "workspaces" / run_id / "trace.jsonl").exists)
        assert open_to_others(tmp_path) == []
