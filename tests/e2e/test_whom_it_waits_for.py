"""While a tool waits for somebody who is away, the run says for whom, and that nobody is there."""

import asyncio
import os
import signal
from pathlib import Path

from tests.cli.calling import agentic
from tests.e2e.bodies import recording, running, to_the_end, view, wake
from tests.kit.waiting import until


async def test_a_run_says_that_the_gateway_is_away_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    go = tmp_path / "marks" / "go"
    async with running(tmp_path / "stack", recording(tmp_path / "marks" / "lines", go=go, steps=1)) as made:
        run_id = await wake(made, "record one line")

        async def is_there(answer: bool = True) -> bool:
            pending = (await view(made, run_id))["pending"]
            return bool(pending) and pending["present"] is answer

        async def is_away() -> bool:
            return await is_there(False)

        await until(is_there)
        assert made.gateway.pid
        os.kill(made.gateway.pid, signal.SIGSTOP)
        await until(is_away, within_s=30)
        shown = await asyncio.to_thread(agentic, "show", run_id, "--url", made.url)
        os.kill(made.gateway.pid, signal.SIGCONT)
        await until(is_there, within_s=30)
        (tmp_path / "marks" / "go1").touch()
        assert (await to_the_end(made, run_id))["state"] == "done"
    told = " ".join(shown.out.replace("│", "").split())
    assert "step 1, probe record: asked of ductile-gateway (route probe) at" in told, shown
    assert "ductile-gateway does not answer: is it running?" in told
