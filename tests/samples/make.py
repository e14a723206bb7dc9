"""Makes the sample of this version: `python -m tests.samples.make tests/samples/stores/VERSION`.

Both services with six runs, of which three are under way (the model thinks, a read and a write are not back) when they
are killed. Their time is over two minutes later, so that whoever opens the sample hands them to a person.
"""

import asyncio
import shutil
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from tests.e2e.bodies import FRAME, wake, written
from tests.e2e.machine import Machine, machine
from tests.e2e.test_upgrades import KEYS, MET, PLACES, plugins

GO = "go"


def _action(tool: str, message: str) -> dict[str, object]:
    return {"action": {"tool": tool, "command": "handle", "arguments": {"message": message}}}


def _script() -> dict[str, object]:
    done = {"verdict": "done", "summary": "done", "met": MET}
    rules = [
        FRAME,
        {"phase": "plan", "when": {"goal": "thinks"}, "wait_s": 3600, "plan": _action("echo", "hello")},
        {"phase": "plan", "when": {"goal": "saves"}, "plan": _action("save", "slowly")},
        {"phase": "plan", "when": {"goal": "slowly"}, "plan": _action("echo", "slowly")},
        {"phase": "plan", "plan": _action("echo", "hello")},
        {"phase": "reflect", "when": {"goal": "gives up"}, "reflect": {"verdict": "escalate", "summary": "stuck"}},
        {"phase": "reflect", "reflect": done},
    ]
    return {"name": "sample", "rules": rules}


def _slow(plugin: Path, go: Path) -> None:
    """It does not answer what is to take long, until there is a file `go`."""
    run = plugin / "run.py"
    waits = f"""    request = json.load(sys.stdin)
    while "slowly" in json.dumps(request) and not Path({str(go)!r}).exists():
        time.sleep(0.1)
    json.dump(answer(request), sys.stdout)
"""
    text = run.read_text().replace("import json\n", "import json\nimport time\nfrom pathlib import Path\n")
    run.write_text(text.replace("    json.dump(answer(json.load(sys.stdin)), sys.stdout)\n", waits))


async def _play(here: Machine) -> None:
    over = f"{datetime.now(UTC) + timedelta(minutes=2):%Y-%m-%dT%H:%M:%SZ}"
    goals = {"w-done": "says it", "w-escalated": "gives up"}
    open_ones = {"w-thinks": "thinks long", "w-slowly": "says it slowly", "w-saves": "saves slowly"}
    runs = {name: await wake(here, goal, wake_id=name) for name, goal in goals.items()}
    constraints = {"deadline_at": over}
    for name, goal in open_ones.items():
        runs[name] = await wake(here, goal, wake_id=name, constraints=constraints)
    runs["w-cancelled"] = await wake(here, "thinks long", wake_id="w-cancelled")
    await here.waits_for(runs["w-thinks"], "model")
    for name in ("w-slowly", "w-saves"):
        await here.waits_for(runs[name], "tool")
    async with httpx2.AsyncClient(base_url=here.url, trust_env=False) as client:
        (await client.post(f"/v1/runs/{runs['w-cancelled']}/cancel", json={})).raise_for_status()
    for name, status in {"w-done": "done", "w-escalated": "escalated", "w-cancelled": "cancelled"}.items():
        await here.comes_to(runs[name], status)


def _dump(database: Path, target: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        target.write_text("\n".join([*connection.iterdump(), f"PRAGMA user_version={version};", ""]))


async def make(target: Path) -> None:
    """Into an empty folder."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        tools = plugins(folder / "plugins")
        for name in ("echo", "save"):
            _slow(tools / name, folder / GO)
        async with machine(folder / "here", written(_script(), folder), plugins=(tools,)) as here:
            await here.begin()
            await _play(here)
            here.lose()
        (folder / GO).touch()
        for name, room in PLACES.items():
            if (database := folder / "here" / room / f"{name}.db").exists():
                _dump(database, target / f"{name}.sql")
        for name in KEYS:
            shutil.copy(folder / "here" / name, target / name.replace("/", "."))


if __name__ == "__main__":
    sample = Path(sys.argv[1])
    sample.mkdir(parents=True)
    asyncio.run(make(sample))
