"""kill -9 in mid-job: of the gateway, of Ductile, and of both. The call ends once, with the job that was made for it.

After a kill Ductile runs a job anew that it had begun (measured of Ductile): the same job, its second attempt. That is
Ductile's doing. What the gateway must never do is to have a second job made.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from schemas.events import ToolResult
from tests.ductile.gateway_house import CALL_ID, House, ending, house, kill
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.on_nats import in_hand
from tests.kit.cut_wire import Knife
from tests.kit.waiting import until

CALLS = 3


@dataclass(frozen=True, slots=True)
class Underway:
    """Writes whose jobs run until `release`."""

    house: House
    go: Path

    async def all_run(self) -> None:
        await until(lambda: sum(map(len, self.house.jobs().values())) == CALLS)
        await until(lambda: len(self.house.disk.accepted()) == CALLS)

    def release(self) -> None:
        self.go.touch()

    def attempts(self) -> list[list[int]]:
        """Of each call; fails where one has had more than one job."""
        assert [len(jobs) for jobs in self.house.jobs().values()] == [1] * CALLS
        ran = [execution for execution in self.house.ductile.executions if CALL_ID in execution.payload]
        return [[one.attempt for one in ran if one.payload[CALL_ID] == key] for key in self.house.asked]


@asynccontextmanager
async def underway(folder: Path, ductile: DuctileUnderTest) -> AsyncIterator[Underway]:
    async with house(folder, ductile) as made:
        for step in range(1, CALLS + 1):
            await made.ask("note", {"do": "hold", "until": str(folder / "go")}, step=step)
        yield Underway(made, folder / "go")


def all_ok(told: dict[str, ToolResult]) -> bool:
    return [ending(result) for result in told.values()] == ["ok"] * CALLS


async def test_a_gateway_killed_in_mid_job_waits_for_the_same_jobs_after_its_restart(
    tmp_path: Path, measured: DuctileUnderTest
) -> None:
    async with underway(tmp_path, measured) as calls:
        async with calls.house.living() as process:
            await calls.all_run()
            kill(process)
        async with calls.house.living():
            calls.release()
            assert all_ok(await calls.house.answers())
    assert calls.attempts() == [[1]] * CALLS


async def test_a_ductile_killed_in_mid_job_runs_the_job_anew_and_the_gateway_makes_no_other(
    tmp_path: Path, measured: DuctileUnderTest
) -> None:
    async with underway(tmp_path, measured) as calls, calls.house.living():
        await calls.all_run()
        measured.kill()
        measured.start()
        await until(lambda: calls.attempts() == [[1, 2]] * CALLS, within_s=30)
        calls.release()
        assert all_ok(await calls.house.answers())
    assert calls.attempts() == [[1, 2]] * CALLS


async def test_both_killed_in_mid_job_end_the_call_once(tmp_path: Path, measured: DuctileUnderTest) -> None:
    async with underway(tmp_path, measured) as calls:
        async with calls.house.living() as process:
            await calls.all_run()
            kill(process)
            measured.kill()
        measured.start()
        async with calls.house.living():
            await until(lambda: calls.attempts() == [[1, 2]] * CALLS, within_s=30)
            calls.release()
            assert all_ok(await calls.house.answers())
    assert calls.attempts() == [[1, 2]] * CALLS


async def test_a_ductile_killed_before_it_tells_of_its_jobs_is_asked_for_them_and_not_for_others(
    tmp_path: Path, measured: DuctileUnderTest
) -> None:
    knife = Knife()
    async with house(tmp_path, measured, on_the_way_to_ductile=knife.rule) as made, made.living():
        told_of = knife.stop_before(rb"HTTP/1\.1 202", "back")
        shown = await made.ask("handle", {}, step=1)
        silent = await made.ask("handle", {"do": "emit", "emitted": {}}, step=2)
        await until(lambda: told_of.seen == 2)
        measured.kill()
        knife.away()
        measured.start()
        told = await made.answers()
    assert [ending(told[key]) for key in (shown, silent)] == ["ok", "in_doubt"]
    assert [len(made.jobs()[key]) for key in (shown, silent)] == [1, 1]


async def test_calls_that_come_while_ductile_is_away_wait_and_are_started_once(
    tmp_path: Path, measured: DuctileUnderTest
) -> None:
    async with house(tmp_path, measured) as made:
        async with made.living() as process:
            measured.kill()
            keys = [await made.ask("note", {}, step=step) for step in range(1, CALLS + 1)]
            await until(lambda: "nothing answers at" in made.gateway.log.read_text(), within_s=30)
            await until(lambda: in_hand(made.link, CALLS), within_s=30)
            kill(process)
        measured.start()
        async with made.living():
            assert all_ok(await made.answers())
    assert [len(made.jobs()[key]) for key in keys] == [1] * CALLS
