"""Somebody with a hand on the files gets nothing: a changed run is left alone, another store is not begun with, and
both are told with what was changed."""

import contextlib
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent_service.cli.doctor.places import database
from agent_service.cli.run_folder import verify
from agent_service.cli.sealing import seal
from agent_service.cli.whole_store import verify_all
from agent_service.settings import load
from groundwork.service.errors import Misconfigured, causes
from schemas import subjects
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


async def refusal(made: Bench) -> str:
    """Why the agent does not begin."""
    await until(made.here.has_ended)
    with pytest.raises(ExceptionGroup) as refused:
        await made.here.stop()
    (cause,) = causes(refused.value)
    assert isinstance(cause, Misconfigured)
    return str(cause)


@pytest.mark.attack
async def test_a_run_whose_limit_was_raised_by_hand_stops_with_that_reason_and_the_others_go_on(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look")) as made:
        raised, sound = await asks(made, "raised", "sound")
        run_id = str(raised["run_id"])
        await made.here.stop()
        raise_it = "UPDATE briefs SET brief = json_set(brief, '$.limits.max_steps', 100000) WHERE run_id = ?"
        changed(tmp_path, raise_it, run_id)
        made.here.start()
        await until(made.is_ready)
        refused = await made.get(f"/v1/runs/{run_id}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "damaged")
        assert f"agentic verify {run_id}" in refused.json()["error"]["message"]
        await made.answer(raised)
        await made.answer(sound)
        assert (await made.ended(str(sound["run_id"])))["state"] == "done"
        (line,) = [line for line in await made.runs() if line["run_id"] == run_id]
        assert (line["state"], line["damaged"][:8]) == ("running", "its row,")
        told = {check.name: check async for check in database(load(tmp_path / "agentic.yaml", {}), deep=False)}
        assert (told["runs"].mark, run_id in told["runs"].text) == ("wrong", True)
        verdict = str(await verify(run_id, tmp_path / "agentic.yaml"))
        assert "brief.limits.max_steps is 100000, and its journal gives 10" in verdict


@pytest.mark.attack
async def test_an_agent_begins_with_no_older_copy_of_its_store_until_a_person_takes_it(tmp_path: Path) -> None:
    config = tmp_path / "agentic.yaml"
    async with bench(tmp_path, one_step("look")) as made:
        await ended(made, "first")
        await made.here.stop()
        shutil.copytree(tmp_path / "agent", tmp_path / "copy")
        made.here.start()
        await until(made.is_ready)
        (lost,) = await ended(made, "second")
        await made.here.stop()
        shutil.rmtree(tmp_path / "agent")
        shutil.copytree(tmp_path / "copy", tmp_path / "agent")
        made.here.start()
        assert "it was set back, or cut" in await refusal(made)
        told = await verify_all(config, against_bus=True)
        assert [flaw.place for flaw in told.flaws] == ["store", "bus"]
        assert f"{subjects.COMPLETED} of {lost} was told with entry" in str(told)
        assert not (await seal(config, yes=False)).done
        assert "it was set back" in str(await seal(config, yes=True))
        made.here.start()
        await until(made.is_ready)
        assert len(await made.runs()) == 1
        assert (await verify_all(config, against_bus=False)).ok


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
        made.here.start()
        assert "it had 3 runs" in await refusal(made)
        await seal(config, yes=True)
        made.here.start()
        await until(made.is_ready)


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
