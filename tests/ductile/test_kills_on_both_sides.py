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


async def test_both_killed_in_mid_job_end_the_call_once(tmp_path: Path, ductile: DuctileUnderTest) -> None:
    async with underway(tmp_path, ductile) as calls:
        async with calls.house.living() as process:
            await calls.all_run()
            kill(process)
            ductile.kill()
        ductile.start()
        async with calls.house.living():
            await until(lambda: calls.attempts() == [[1, 2]] * CALLS, within_s=30)
            calls.release()
            assert all_ok(await calls.house.answers())
    assert calls.attempts() == [[1, 2]] * CALLS
