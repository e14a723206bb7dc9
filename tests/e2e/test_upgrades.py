"""An installation of an earlier version, killed with runs under way: this one opens it, and its runs can go on.

`samples/stores/` holds one for each format, as SQL, made by the services of that version (`samples/make.py`).
"""

import asyncio
import contextlib
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from agent_service.store.sql import database
from ductile_gateway import store
from tests.cli.calling import agentic
from tests.e2e.bodies import written
from tests.e2e.machine import Machine, machine
from tests.samples import samples

SAMPLES = [runs.parent for runs in samples("runs.sql")]
PLACES = {"runs": "agent", "ledger": "gateway", "outbox": "gateway"}
KEYS = ("agent.keys", "gateway.keys", "agent/store.id", "gateway/store.id")
"""Files of an installation that prove whose its rows are; earlier ones have none."""
MET = [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]
SAID = {"action": {"tool": "echo", "command": "handle", "arguments": {"message": "hello"}}}
SCRIPT = {
    "name": "sample",
    "rules": [
        {"phase": "plan", "plan": SAID},
        {"phase": "reflect", "reflect": {"verdict": "done", "summary": "done", "met": MET}},
    ],
}
ENDS = {
    "w-done": "done",
    "w-escalated": "escalated",
    "w-cancelled": "cancelled",
    "w-thinks": "escalated",
    "w-slowly": "escalated",
    "w-saves": "escalated",
}
"""By wake id. The last three were under way, and their hour has passed since: they are handed to a person."""
ECHO = Path(__file__).parent.parent.parent / "deploy" / "ductile" / "plugins" / "echo"


def unpacked(sample: Path, folder: Path) -> None:
    for place in set(PLACES.values()):
        (folder / place).mkdir(exist_ok=True)
    for name in KEYS:
        if (kept := sample / name.replace("/", ".")).exists():
            shutil.copyfile(kept, folder / name)
            (folder / name).chmod(0o600)
    for name, place in PLACES.items():
        if (dump := sample / f"{name}.sql").exists():
            with contextlib.closing(sqlite3.connect(folder / place / f"{name}.db")) as connection:
                connection.executescript(dump.read_text())


def plugins(folder: Path) -> Path:
    """`echo`, and `save`, which is the same and writes."""
    for name in ("echo", "save"):
        shutil.copytree(ECHO, folder / name)
    manifest = folder / "save" / "manifest.yaml"
    text = manifest.read_text().replace("name: echo", "name: save").replace("type: read", "type: write", 1)
    manifest.write_text(text.replace("idempotent: true", "idempotent: false", 1))
    return folder


async def by_wake(here: Machine) -> dict[str, str]:
    async with httpx2.AsyncClient(base_url=here.url, trust_env=False) as client:
        return {run["wake_id"]: run["run_id"] for run in (await client.get("/v1/runs")).json()["runs"]}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
async def test_what_an_earlier_version_left_is_opened_and_a_run_of_it_goes_on_to_its_end(
    tmp_path: Path, sample: Path
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    script = written(SCRIPT, tmp_path)
    async with machine(folder, script, plugins=(plugins(tmp_path / "plugins"),)) as here:
        unpacked(sample, folder)
        told = await asyncio.to_thread(here.call, "doctor")
        checks = {check["name"]: check for check in told.document["checks"]}
        coming = {"database": database.ahead(folder / "agent"), "ledger": store.ahead(folder / "gateway")}
        for name in (name for name, text in coming.items() if text):
            assert (checks[name]["mark"], checks[name]["text"]) == ("warning", coming[name])
            assert "a backup that is made before" in checks[name]["remedy"]
        await here.begin()
        runs = await by_wake(here)
        assert set(runs) == set(ENDS)
        for wake, state in ENDS.items():
            await here.comes_to(runs[wake], state)
        tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
        said = ("--deadline", tomorrow, runs["w-thinks"], "go on")
        answered = await asyncio.to_thread(agentic, "answer", "--url", here.url, *said)
        assert answered.code == 0, answered
        await here.comes_to(runs["w-thinks"], "done")
        assert not (folder / "gateway" / "outbox.db").exists(), "it is part of the ledger now"
        verdict = await asyncio.to_thread(here.call, "verify", "--all")
        assert verdict.document["ok"], verdict
