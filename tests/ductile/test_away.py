"""A Ductile that goes away in mid-job is waited for: for as long as somebody wants the answer, and on nobody's time."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ductile_gateway.calls.call import ToolCall
from ductile_gateway.ductile.watch import Pace
from tests.ductile.fake import FakeDuctile
from tests.ductile.runner_house import QUICK, a_call, gateway, outcome
from tests.kit.waiting import until


def wanted(call: ToolCall, *, for_s: float) -> ToolCall:
    """The call of somebody who waits for so many seconds longer than the tool may take."""
    return replace(call, wanted_until=call.deadline_at + timedelta(seconds=for_s))


async def test_a_ductile_that_stays_away_is_waited_for_as_long_as_the_answer_is_wanted(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    call = wanted(a_call(within_s=0.5, do="hold", until=str(tmp_path / "gate")), for_s=0.7)
    async with gateway(fake, tmp_path, pace=replace(QUICK, patience_s=0)) as runner:
        running = asyncio.create_task(runner.run(call))
        await until(lambda: fake.executions)
        fake.kill()
        found = outcome(await running)
    assert (found.error_class, "is away" in str(found.message)) == ("timeout", True)
    assert datetime.now(UTC) > call.deadline_at + timedelta(seconds=0.7)


def test_looks_are_as_far_apart_as_an_eighth_of_what_the_job_has_taken_within_bounds() -> None:
    pace = Pace(first_s=0.1, most_s=5.0)
    assert [pace.after(waited_s) for waited_s in (0.0, 0.8, 2.0, 16.0, 40.0, 3600.0)] == [0.1, 0.1, 0.25, 2.0, 5.0, 5.0]
