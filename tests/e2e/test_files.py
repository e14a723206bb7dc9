"""An agent's folder: unreadable rows, runs that were deleted or rewritten, file permissions; and settings of one agent
only."""

import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent_service.archive.verifying import verify_all
from agent_service.core.phases import Digest, Phase, Reflection, Verdict
from agent_service.run.journal import Commit
from agent_service.store.runs import RunStore
from schemas import subjects
from tests.kit.runs import DIGEST, FRAMING, accepted, plan, replied, returned, started
from tests.kit.stack import get, is_ready, messages, one_step, post, to_the_end, until
from tests.kit.tool_bench import READ, Bench, bench

FAR = "run_00000000000000000000000001"
STEPS = 5000
BOUND_S, BOUND_MIB = 60.0, 600.0
"""Several times the expected CPU seconds and MiB."""
DAMAGE = {
    "state": "UPDATE runs SET state = substr(state, 1, 40) WHERE run_id = ?",
    "no-text": "UPDATE runs SET state = CAST(x'ff7b7d' AS TEXT) WHERE run_id = ?",
    "brief": "UPDATE briefs SET brief = '{}' WHERE run_id = ?",
}
OF_THE_JOURNAL = "UPDATE journal SET event = 'nothing' WHERE run_id = ? AND seq = 2"
REWRITTEN = "UPDATE journal SET hash = zeroblob(32) WHERE run_id = ? AND kind = 'ModelReplied'"
REMOVED = [f"DELETE FROM {table} WHERE run_id = ?" for table in ("items", "briefs", "journal", "runs")]  # noqa: S608


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, one_step("look")) as agent:
        yield agent


def changed(made: Bench, statement: str, run_id: str) -> None:
    with contextlib.closing(sqlite3.connect(made.folder / "agent" / "runs.db", timeout=10)) as connection, connection:
        assert connection.execute(statement, (run_id,)).rowcount > 0


async def test_a_damaged_row_stops_its_own_run_and_no_other(made: Bench) -> None:
    asked = {name: (await made.begun(name))[1] for name in (*DAMAGE, "sound")}
    runs = {damage: str(asked[damage]["run_id"]) for damage in DAMAGE}
    for damage, statement in DAMAGE.items():
        changed(made, statement, runs[damage])
    await made.restart()

    async def reasons() -> str:
        kept = [message.headers async for message in messages(made.link, stream=subjects.STREAM_DEAD_LETTERS)]
        return " ".join(letter.get("Dead-Letter-Reason", "") for letter in kept)

    async def damaged() -> dict[str, str]:
        return {
            line["run_id"]: line["status"] for line in (await get(made, "/v1/runs")).json()["runs"] if line["damaged"]
        }

    await until(damaged, lambda found: found.keys() == set(runs.values()))
    for damage, run_id in runs.items():
        for answer in (await get(made, f"/v1/runs/{run_id}"), await post(made, f"/v1/runs/{run_id}/cancel")):
            assert (answer.status_code, answer.json()["error"]["code"]) == (500, "damaged"), damage
        await made.answer(asked[damage])
    await until(reasons, lambda said: all(f"run {run_id} is damaged" in said for run_id in runs.values()))
    changed(made, OF_THE_JOURNAL, sound := str(asked["sound"]["run_id"]))  # which the run does not need to go on
    await made.answer(asked["sound"])
    await until(damaged, lambda found: found.get(sound) == "done")
    assert (await get(made, f"/v1/runs/{sound}")).json()["error"]["code"] == "damaged"
    await made.begun("another")


@pytest.mark.attack
async def test_a_run_that_was_removed_or_written_anew_is_told_by_the_bus(made: Bench) -> None:
    config, runs = made.folder / "agentic.yaml", []
    for name in ("removed", "rewritten", "sound"):
        run_id, request = await made.begun(name)
        await made.answer(request)
        assert (await to_the_end(made, run_id))["state"] == "done"
        runs.append(run_id)
    removed, rewritten, sound = runs
    await made.stop()
    assert (await verify_all(config, against_bus=True)).ok
    for statement in REMOVED:
        changed(made, statement, removed)
    changed(made, REWRITTEN, rewritten)
    told = await verify_all(config, against_bus=True)
    of_the_bus = [flaw["text"] for flaw in told.facts["flaws"] if flaw["place"] == "bus"]
    assert any(removed in text and "is not there any more" in text for text in of_the_bus)
    assert any(rewritten in text and "another entry is there now" in text for text in of_the_bus)
    assert not any(sound in text for text in of_the_bus)
    assert [run["run_id"] for run in told.facts["flawed"]] == [rewritten]


@pytest.mark.attack
async def test_nobody_else_on_the_machine_reads_what_the_agent_keeps_also_where_it_could_before(tmp_path: Path) -> None:
    for name in ("agent", "workspaces"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "agent" / "runs.db").touch()
    (tmp_path / "agent" / "runs.db").chmod(0o644)
    async with bench(tmp_path, one_step("look")) as made:
        run_id, request = await made.begun("one")
        await made.answer(request)
        await until((tmp_path / "workspaces" / run_id / "trace.jsonl").exists)
        assert open_to_others(tmp_path) == []


def open_to_others(folder: Path) -> list[str]:
    kept = [folder / "agent", folder / "workspaces", *folder.glob("agent*/*"), *folder.glob("agent.keys*")]
    kept += (folder / "workspaces").rglob("*")
    return [path.name for path in kept if path.stat().st_mode & 0o077]


async def test_a_tool_of_one_that_answers_no_catalog_is_called_once_the_settings_declare_it(tmp_path: Path) -> None:
    tool = READ | {"name": "jina-reader", "route": "jina-reader"}
    async with bench(tmp_path, one_step("jina-reader"), offers=(), tools={"declared": [tool]}) as made:
        assert await is_ready(made)
        run_id, request = await made.begun("w")
        assert (request["tool"], request["executor"]) == ("jina-reader", None)
        await made.answer(request)
        assert (await to_the_end(made, run_id))["state"] == "done"


@pytest.mark.timeout(1500)
async def test_a_journal_of_five_thousand_steps_is_loaded_shown_and_verified_and_goes_on(tmp_path: Path) -> None:
    await long_run(tmp_path / "agent")
    before = _resident_mib()
    async with bench(tmp_path, one_step("look")) as made:
        asked = await made.request(1)
        began = time.process_time()
        seen = (await get(made, f"/v1/runs/{FAR}")).json()
        items = (await get(made, f"/v1/runs/{FAR}/timeline")).json()["items"]
        newest = (await get(made, f"/v1/runs/{FAR}/entries", after=2 * STEPS)).json()["entries"]
        assert time.process_time() - began < BOUND_S
        assert (len(seen["steps"]), bool(items), bool(newest)) == (STEPS + 1, True, True)
        await made.answer(asked)
        assert (await to_the_end(made, FAR))["state"] == "done"
        assert _resident_mib() - before < BOUND_MIB
    assert (await verify_all(tmp_path / "agentic.yaml", against_bus=False)).ok


async def long_run(folder: Path) -> None:
    """A store whose one long run waits for the result of its next step."""
    now, most = datetime.now(UTC), 2 * STEPS
    deadline_at = now + timedelta(days=2)
    commit = accepted(goal="go far", at=now, deadline_at=deadline_at, max_steps=most, max_attempts_of_run=most)
    async with RunStore.open(folder) as store:
        await store.accept(commit, DIGEST)

        async def then(following: Commit) -> None:
            nonlocal commit
            await store.commit(following)
            commit = following

        await then(started(commit))
        await then(replied(commit, FRAMING, plan(1)))
        for step in range(1, STEPS + 1):
            await then(returned(commit))
            if commit.state.open_call and commit.state.open_call.phase is Phase.COMPACT:
                await then(replied(commit, Digest(memory=("all of it",))))
            going_on = Reflection(verdict=Verdict.CONTINUE, summary=f"part {step} is known", facts=(f"fact {step}",))
            await then(replied(commit, going_on, plan(step + 1)))


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
