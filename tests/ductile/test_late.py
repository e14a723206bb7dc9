"""A job that outlives its call is followed until it ends, also by the next gateway, and its end is told once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ductile_gateway.calls.call import ToolCall, Unknown, Verdict
from ductile_gateway.ductile.jobs import Going
from ductile_gateway.ductile.late import FOR, LateJobs, Tell
from ductile_gateway.ductile.watch import Job
from ductile_gateway.store.ledger import SqliteOverdue
from tests.ductile.runner_house import Recorded, a_call, gateway, outcome
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.parts import opened
from tests.kit.waiting import until


class Told(dict[str, Verdict]):
    """What was told, by the key of its call; `tries` are all that were made, of which the first `refused` fail."""

    tries = 0
    refused = 0

    async def take(self, key: str, verdict: Verdict) -> bool:
        self.tries += 1
        if self.tries <= self.refused:
            return False
        assert key not in self, "told twice"
        self[key] = verdict
        return True


@asynccontextmanager
async def following(runner: Recorded) -> AsyncIterator[Told]:
    told = Told()
    task = asyncio.create_task(runner.late.follow(told.take))
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def outlived(ductile: DuctileUnderTest, folder: Path) -> tuple[ToolCall, Path]:
    """A call that was answered at its deadline and forgotten, while its job waits for the file."""
    gate, call = folder / "go", a_call(within_s=1.5, do="hold", until=str(folder / "go"))
    async with gateway(ductile, folder) as runner:
        verdict = outcome(await runner.run(call))
        await runner.forget(call.key)
    assert (verdict.status, verdict.error_class) == ("error", "timeout")
    return call, gate


async def test_a_job_that_ends_after_its_deadline_is_told_by_the_next_gateway(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    call, gate = await outlived(ductile, tmp_path)
    async with gateway(ductile, tmp_path) as runner, following(runner) as told:
        assert not told
        gate.touch()
        await until(lambda: told)
    assert outcome(told[call.key]).status == "ok"
    async with gateway(ductile, tmp_path) as runner, following(runner) as again:
        await until(lambda: runner.late.waiting() == 0)
    assert not again
    assert len(ductile.executions) == 1


class Later:
    """A clock that is a day ahead."""

    def now(self) -> datetime:
        return datetime.now(UTC) + FOR + timedelta(minutes=1)


class Ended:
    """A job of which this is read whenever it is looked at."""

    def __init__(self, reading: Going | Verdict) -> None:
        self.reading = reading
        self.looked_at: list[Job] = []

    async def look(self, job: Job) -> Going | Verdict:
        self.looked_at.append(job)
        return self.reading


@asynccontextmanager
async def one_late(folder: Path, watch: Ended, tell: Tell) -> AsyncIterator[LateJobs]:
    """One job that was overdue a day ago, followed."""
    async with opened(folder, SqliteOverdue) as overdue:
        await overdue.add("k", Job("j", pipeline=True), datetime.now(UTC))
        late = LateJobs(watch, overdue, every_s=0.01, clock=Later())
        task = asyncio.create_task(late.follow(tell))
        yield late
        task.cancel()


async def test_a_job_that_never_ends_is_given_up_after_a_day(tmp_path: Path) -> None:
    told = Told()
    async with one_late(tmp_path, Ended(Going()), told.take) as late:
        await until(lambda: not late.waiting())
    assert isinstance(told["k"], Unknown)
