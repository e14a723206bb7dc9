"""The gateway asks the agent over the bus whether a run has ended, and is told."""

from pathlib import Path

from ductile_gateway.bus.outgoing import NatsRuns
from groundwork.nats import link as nats_link
from groundwork.nats.settings import NatsSettings
from tests.e2e.bodies import lines, recording, running, to_the_end, touch, wake
from tests.kit.waiting import until


async def test_a_run_has_ended_for_the_gateway_when_it_has_for_the_agent(tmp_path: Path) -> None:
    file, go = tmp_path / "marks" / "file", tmp_path / "marks" / "go"
    async with running(tmp_path / "stack", recording(file, go=go, steps=1)) as made:
        link = await nats_link.connect(NatsSettings(urls=(made.nats.url,)))
        runs, run_id = NatsRuns(link), await wake(made)
        await until(lambda: lines(file) == 1, within_s=30)
        assert not await runs.has_ended(run_id)
        touch(go, 1)
        await to_the_end(made, run_id)
        assert await runs.has_ended(run_id)
        assert not await runs.has_ended("run_of_nobody")
        await link.close()
