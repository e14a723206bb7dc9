"""Stores and NATS on one disk that gets full: why nothing is stored is said, and once there is room runs go on."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from agent_service.bus.room import CANNOT_WRITE
from agent_service.cli.doctor.machine import api
from agent_service.settings import load
from agent_service.workbench.dev import DevStack
from tests.e2e.bodies import recording, running, to_the_end, view, wake
from tests.kit.disks import small_disk
from tests.kit.waiting import until


def filled(disk: Path) -> Path:
    """What takes all that was free, to the last byte."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler


async def readiness(made: DevStack) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False, timeout=10) as client:
        return await client.get("/readyz")


def waiting_first(file: Path) -> dict[str, Any]:
    """A script that waits, records a line and is done."""
    frame, plan, end = recording(file, steps=1)["rules"]
    waited, wait = (
        plan | {"when": {"feedback": "you have waited"}},
        {"seconds": 3, "why": "the disk is filled"},
    )
    return {"name": "waiting", "rules": [frame, waited, {"phase": "plan", "wait": wait}, end]}


async def test_a_run_goes_on_by_itself_once_a_disk_that_nats_shares_has_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64m") as disk:
        async with running(disk, waiting_first(tmp_path / "marks" / "lines")) as made:
            run_id = await wake(made)
            await until(lambda: _waits(made, run_id), within_s=20)
            filler = filled(disk)
            await until(lambda: _is_told(made), within_s=90)
            settings = load(made.config, {})
            assert "systemctl restart agentic-nats" in (await api(settings.http, settings.store)).remedy
            filler.unlink()
            assert (await to_the_end(made, run_id))["state"] == "done"
            await until(lambda: _is_ready(made), within_s=30)


async def _waits(made: DevStack, run_id: str) -> bool:
    return "the disk is filled" in str((await view(made, run_id)).get("summary"))


async def _is_told(made: DevStack) -> bool:
    return CANNOT_WRITE in (await readiness(made)).json()["checks"]["room"]


async def _is_ready(made: DevStack) -> bool:
    return (await readiness(made)).is_success
