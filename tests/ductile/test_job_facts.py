"""What Ductile knows of a job beside its outcome, and what of it reaches the run."""

import asyncio
from pathlib import Path

from tests.ductile.fake import FakeDuctile, prints
from tests.ductile.runner_house import a_call, gateway, outcome
from tests.ductile.under_test import DuctileUnderTest
from tests.kit.waiting import until


async def test_an_outcome_names_its_job(ductile: DuctileUnderTest, tmp_path: Path) -> None:
    async with gateway(ductile, tmp_path) as runner:
        done, refused = [outcome(await runner.run(a_call(do=do))) for do in ("answer", "refuse")]
    assert [done.job.job_id, refused.job.job_id] == [one.job_id for one in ductile.executions]
    assert (done.job.attempts, done.job.was_rerun) == (1, False)


async def test_a_job_that_ductile_ran_again_after_it_was_killed_says_so(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with gateway(ductile, tmp_path) as runner:
        running = asyncio.create_task(runner.run(a_call(do="hold", until=str(gate))))
        await until(lambda: ductile.executions)
        await asyncio.to_thread(ductile.kill)
        await asyncio.to_thread(ductile.start)
        await until(lambda: len(ductile.executions) == 2)
        gate.touch()
        found = outcome(await running)
    assert (found.status, found.job.attempts) == ("ok", 2)


async def test_an_error_brings_the_end_of_stderr_without_our_secrets(fake: FakeDuctile, tmp_path: Path) -> None:
    fake.on("probe", "note", prints(b"no JSON", stderr=f"{'x' * 3000}\nSHED_API_KEY is not set, {fake.token} is"))
    async with gateway(fake, tmp_path) as runner:
        found = outcome(await runner.run(a_call()))
    assert found.job.stderr == "SHED_API_KEY is not set, *** is"
