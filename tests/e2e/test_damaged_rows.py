"""A row that cannot be read stops its own run, visibly, and no other; what is asked of that run is refused."""

import contextlib
import sqlite3
from pathlib import Path

from agent_service.cli.doctor.machine import database
from agent_service.settings import load
from schemas import subjects
from tests.e2e.by_hand import Bench, bench, one_step
from tests.kit.waiting import until

DAMAGE = {
    "state": "UPDATE runs SET state = substr(state, 1, 40) WHERE run_id = ?",
    "no-text": "UPDATE runs SET state = CAST(x'ff7b7d' AS TEXT) WHERE run_id = ?",
    "brief": "UPDATE briefs SET brief = '{}' WHERE run_id = ?",
    "entry": "UPDATE journal SET event = 'nothing' WHERE run_id = ? AND seq = 2",
}


def spoil(folder: Path, statement: str, run_id: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / "agent" / "runs.db", timeout=10)) as connection, connection:
        connection.execute(statement, (run_id,))


async def is_shown_damaged(made: Bench, run_id: str) -> bool:
    (line,) = [line for line in await made.runs() if line["run_id"] == run_id]
    return bool(line["damaged"])


async def waiting_runs(made: Bench, *names: str) -> dict[str, dict[str, object]]:
    """The requests of new runs, by the names of their wakes."""
    run_ids = {name: (await made.wake(name)).json()["run_id"] for name in names}
    await made.request(len(names))
    return {name: next(r for r in made.requests if r["run_id"] == run_ids[name]) for name in names}


async def test_a_damaged_row_stops_its_own_run_and_no_other(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look")) as made:
        asked = await waiting_runs(made, *DAMAGE, "sound")
        run_ids = {damage: str(asked[damage]["run_id"]) for damage in DAMAGE}
        for damage, run_id in run_ids.items():
            spoil(tmp_path, DAMAGE[damage], run_id)
        await made.here.stop()
        made.here.start()
        await until(made.is_ready)
        for damage, run_id in run_ids.items():
            await until(lambda run_id=run_id: is_shown_damaged(made, run_id))  # type: ignore[misc]  # a bound default
            for answer in (await made.get(f"/v1/runs/{run_id}"), await made.post(f"/v1/runs/{run_id}/cancel")):
                assert (answer.status_code, answer.json()["error"]["code"]) == (500, "damaged"), damage
                assert "restore its database from a backup" in answer.json()["error"]["message"]
            await made.answer(asked[damage])
        await until(lambda: have_dead_letters(made, *run_ids.values()))
        await made.answer(asked["sound"])
        assert (await made.ended(str(asked["sound"]["run_id"])))["state"] == "done"
        another = (await made.wake("another")).json()["run_id"]
        await until(lambda: another in {request["run_id"] for request in made.requests})
        told = {check.name: check async for check in database(load(tmp_path / "agentic.yaml", {}), deep=False)}
        assert told["runs"].mark == "wrong"
        assert all(run_id in told["runs"].text for run_id in run_ids.values())


async def have_dead_letters(made: Bench, *run_ids: str) -> bool:
    """Whether a dead letter says of each run that it is damaged."""
    stream, jetstream = subjects.STREAM_DEAD_LETTERS, made.client.jetstream()
    newest = (await jetstream.stream_info(stream)).state.last_seq
    letters = [await jetstream.get_msg(stream, seq) for seq in range(1, newest + 1)]
    reasons = {(letter.headers or {}).get("Dead-Letter-Reason", "") for letter in letters}
    return all(any(f"run {run_id} is damaged" in reason for reason in reasons) for run_id in run_ids)
