"""While the Ductile behind the gateway is away, a run that waits for a tool says so."""

import asyncio
from pathlib import Path

from agent_service.workbench.dev import stack
from tests.cli.calling import agentic
from tests.ductile.fake import FakeDuctile
from tests.ductile.test_late_in_the_journal import options
from tests.e2e.bodies import view, wake
from tests.kit.waiting import until


async def test_a_run_says_that_ductile_is_away_and_goes_on_when_it_is_back(fake: FakeDuctile, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    async with stack(options(fake, tmp_path)) as made:
        fake.kill()
        run_id = await wake(made, f"hold note until {gate}")

        async def says_why() -> bool:
            pending = (await view(made, run_id))["pending"]
            return bool(pending) and pending["trouble"] != ""

        await until(says_why, within_s=30)
        waiting = (await view(made, run_id))["pending"]
        shown = await asyncio.to_thread(agentic, "show", run_id, "--url", made.url)
        fake.start()

        async def has_answered() -> bool:
            return str((await view(made, run_id))["steps"][0]["status"]) == "ok"

        await until(has_answered, within_s=60)
    assert (waiting["executor"], waiting["present"]) == ("ductile-gateway", True)
    assert "ductile" in waiting["trouble"].lower()
    assert "it says: " in " ".join(shown.out.replace("│", "").split()), shown
