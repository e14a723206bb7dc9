"""Guards that serve several calls: calls are isolated, programs run as if started anew, and changes on disk apply at
once."""

import asyncio
import gc
import os
import resource
import shutil
import signal
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import ToolOutcome, Verdict
from ductile_gateway.plugins import boxes, process
from ductile_gateway.plugins.box.order import ProcessLimits
from ductile_gateway.plugins.boxes import plugin_environment
from ductile_gateway.plugins.runner import LocalPlugins
from groundwork.service import store_folder
from tests.gateway.parts import a_tool_call, unrecorded
from tests.gateway.plugins.kit import guards, local_plugins, records
from tests.kit.waiting import until

MANIFEST = """
{manifest_spec: ductile.plugin, manifest_version: 1, protocol: 2, name: tool, version: 1, entrypoint: run.py,
 commands: [{name: handle, type: read}]}
"""


def tool(folder: Path, program: str, **others: str) -> Path:
    made = folder / "plugins" / "tool"
    made.mkdir(parents=True, exist_ok=True)
    (made / "manifest.yaml").write_text(MANIFEST)
    for module, text in {"run": program, **others}.items():
        (made / f"{module}.py").write_text(text)
        (made / f"{module}.py").chmod(0o755)
    return made.parent


async def verdict_of(plugins: LocalPlugins, number: int = 1, *, within_s: float = 30, **payload: Any) -> Verdict:
    return await plugins.run(a_tool_call("tool", "handle", payload, within_s=within_s, step=number), unrecorded)


async def output_of(plugins: LocalPlugins, number: int = 1, **payload: Any) -> dict[str, Any]:
    verdict = await verdict_of(plugins, number, **payload)
    assert isinstance(verdict, ToolOutcome), verdict
    assert verdict.status == "ok", verdict.message
    return dict(verdict.output)


PYTHON = "#!/usr/bin/env python3\n"
PROGRAMS = {
    "a crash": "def f():\n    raise ValueError('boom')\nf()\n",
    "a crash in a module": "import other\nother.f(0)\n",
    "a word": "import sys\nprint('told')\nsys.exit('a word')\n",
    "a number": "import sys\nsys.exit(3)\n",
    "a number that is large": "raise SystemExit(256 + 7)\n",
    "an end within": "import os\nprint('lost')\nos._exit(5)\n",
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "what is done at the end": "import atexit\natexit.register(print, 'last')\nprint('first')\n",
    "a thread that goes on": "import threading\nthreading.Timer(0.1, print, ['late']).start()\n",
    "where it is": "import sys, __main__\nprint(__name__, __file__, sys.argv, sys.path, __main__.__file__, __spec__)\n",
    "what it is given": "from sys import *\nprint(stdin.read()[-9:], stdin.encoding, stdout.encoding, flags)\n",
    "signals": "import signal\nprint([(n, signal.getsignal(n)) for n in (2, 13, 15, 17, 25)])\n",
    "no Python": "this is none\n",
    "a module of its own before one of Python": "import token\nprint(token.OWN)\n",
    "an option in its first line": "#!/usr/bin/env -S python3 -O\nimport sys\nprint(sys.flags.optimize)\n",
    "a script that opens its input again": "#!/bin/sh\ncat /dev/stdin | wc -c\n",
}
LARGE = "x" * 300_000


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
async def test_a_program_ends_and_says_what_it_would_if_it_were_started_anew(tmp_path: Path, program: str) -> None:
    text = program if program.startswith("#!") else PYTHON + program
    folder = tool(tmp_path, text, other="def f(x):\n    return 1 / x\n", token="OWN = True\n")  # noqa: S106 - a module of Python
    await verdict_of(local_plugins(tmp_path, folder=folder), large=LARGE)
    found = records(tmp_path)[0].read()
    run = folder / "tool" / "run.py"
    seen = plugin_environment()
    alone = subprocess.run([run], input=found["request"], capture_output=True, check=False, env=seen)  # noqa: ASYNC221 - short
    told = [found.get(name, b"") for name in ("stdout", "stderr")]
    code = alone.returncode if alone.returncode >= 0 else 128 - alone.returncode
    assert (int(found["exit"].split()[0]), *told) == (code, alone.stdout, alone.stderr)


LEAVES = """
import json, os, sys, tempfile
from pathlib import Path
found = [str(p) for place in (".", os.environ["TMPDIR"]) for p in Path(place).rglob("*")]
left = [name for name in ("LEFT",) if name in os.environ] + [name for name in sys.modules if name == "other"]
import other
os.environ["LEFT"] = "1"
Path("left/deep").mkdir(parents=True)
Path("left/deep/file").write_text("x")
Path("left").chmod(0)
Path(os.environ["TMPDIR"], "file").symlink_to("/etc")
output = {"found": found, "left": left, "call": os.environ["AGENTIC_CALL"]}
json.dump({"status": "ok", "result": "left", "output": output}, sys.stdout)
"""


async def test_calls_of_one_guard_find_nothing_of_each_other(tmp_path: Path) -> None:
    plugins = local_plugins(tmp_path, folder=tool(tmp_path, PYTHON + LEAVES, other=""))
    outputs = [await output_of(plugins, number) for number in (1, 2, 3)]
    assert [(one["found"], one["left"]) for one in outputs] == [([], [])] * 3
    assert {one["call"] for one in outputs} == {record.path.name for record in records(tmp_path)}
    assert len(set(guards(tmp_path))) == 1


SAYS = "import json, other\nprint(json.dumps({'status': 'ok', 'result': 'x', 'output': {'said': [%s, other.SAID]}}))\n"


@pytest.mark.parametrize("how", ["in place", "as a new file", "as a new folder"])
async def test_a_program_that_has_changed_is_never_served_as_it_was(tmp_path: Path, how: str) -> None:
    folder = tool(tmp_path, PYTHON + SAYS % 1, other="SAID = 1\n")
    plugins = local_plugins(tmp_path, folder=folder)
    assert (await output_of(plugins, 0))["said"] == [1, 1]
    for number in (2, 3):
        times = {path.name: path.stat().st_mtime_ns for path in (folder / "tool").iterdir()}
        if how == "as a new folder":
            shutil.copytree(folder / "tool", tmp_path / "new")
            (folder / "tool").rename(tmp_path / f"old-{number}")
            (tmp_path / "new").rename(folder / "tool")
        for path in (folder / "tool").glob("*.py"):
            new = path.read_text().replace(str(number - 1), str(number))
            if how == "as a new file":
                path.unlink()
            path.write_text(new)
            path.chmod(0o755)
            os.utime(path, ns=(times[path.name], times[path.name]))
        assert (await output_of(plugins, number))["said"] == [number, number]


@pytest.mark.parametrize("files", ["view", "landlock"])
def test_a_closed_file_that_was_replaced_needs_another_guard_where_a_view_shades_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: boxes.Files
) -> None:
    monkeypatch.setattr(boxes, "LOOK_S", -1)
    closed, made = tmp_path / "closed", tool(tmp_path, "") / "tool"
    closed.touch()
    orders = boxes.OrderCache(boxes.Box(boundary=boxes.Boundary(files), closed=(closed,)))
    before = orders.of(made, made / "run.py", {})
    assert orders.of(made, made / "run.py", {}).key == before.key
    store_folder.write(closed, "new")
    assert (orders.of(made, made / "run.py", {}).key == before.key) == (files == "landlock")


def stat_of(pid: int) -> list[str]:
    """Its state, its parent and more; empty once it is reaped."""
    file = Path(f"/proc/{pid}/stat")
    return file.read_text().rpartition(")")[2].split() if file.exists() else []


async def test_a_guard_or_guardhouse_that_is_killed_between_calls_costs_no_call(tmp_path: Path) -> None:
    plugins = local_plugins(tmp_path, folder=tool(tmp_path, PYTHON + SAYS % 1, other="SAID = 1\n"))
    await output_of(plugins, 1)
    guard = guards(tmp_path)[-1]
    house = int(stat_of(guard)[1])
    os.kill(guard, signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{guard}").exists())
    await output_of(plugins, 2)
    guard = guards(tmp_path)[-1]
    for pid in (house, guard):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{guard}").exists())
    await output_of(plugins, 3)
    assert len(set(guards(tmp_path))) == 3


async def test_a_guardhouse_that_is_stopped_is_left_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ORDER_WITHIN_S", 0.2)
    folder = tool(tmp_path, PYTHON + SAYS % 1, other="SAID = 1\n")
    plugins = local_plugins(tmp_path, folder=folder, limits=ProcessLimits(grace_s=0.05))
    await output_of(plugins, 0)
    guard = guards(tmp_path)[-1]
    house = int(stat_of(guard)[1])
    os.kill(house, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    try:
        ended, number = [""], count(1)
        while "ok" not in ended:  # until orders fill the line
            runs = [verdict_of(plugins, next(number), within_s=1) for _ in range(32)]
            ended = [getattr(verdict, "status", "") for verdict in await asyncio.gather(*runs)]
    finally:
        os.kill(house, signal.SIGKILL)


async def test_a_guard_that_can_start_nothing_says_so_and_the_next_call_has_another(tmp_path: Path) -> None:
    plugins = local_plugins(tmp_path, folder=tool(tmp_path, PYTHON + SAYS % 1, other="SAID = 1\n"))
    await output_of(plugins, 0)
    guard = guards(tmp_path)[-1]
    for number in range(1, 24):
        resource.prlimit(guard, resource.RLIMIT_NOFILE, (24 - number, 256))
        verdict = await verdict_of(plugins, number)
        assert isinstance(verdict, ToolOutcome), verdict
        if verdict.status != "ok":
            break
    assert isinstance(verdict, ToolOutcome)
    assert (verdict.retryable, "has done nothing" in str(verdict.message)) == (True, True), verdict
    await output_of(plugins, number + 1)
    assert len(set(guards(tmp_path))) == 2


async def test_nothing_is_left_of_guards_that_nobody_uses_any_more(tmp_path: Path) -> None:
    plugins = local_plugins(tmp_path, folder=tool(tmp_path, PYTHON + SAYS % 1, other="SAID = 1\n"))
    await output_of(plugins)
    assert len(list((tmp_path / "places").iterdir())) == 1
    house = int(stat_of(guards(tmp_path)[-1])[1])
    del plugins
    gc.collect()
    await until(lambda: not list((tmp_path / "places").iterdir()))
    await until(lambda: stat_of(house)[:1] in (["Z"], []))
    await output_of(local_plugins(tmp_path, folder=tmp_path / "plugins"), 2)
    assert stat_of(house) == []


async def test_calls_at_once_have_guards_of_their_own(tmp_path: Path) -> None:
    code = "import json, os, time\ntime.sleep(0.5)\nprint(json.dumps({'status': 'ok', 'result': os.getcwd()}))\n"
    plugins = local_plugins(tmp_path, folder=tool(tmp_path, PYTHON + code))
    verdicts = await asyncio.gather(*(verdict_of(plugins, number) for number in range(5)))
    assert len({verdict.text for verdict in verdicts if isinstance(verdict, ToolOutcome)}) == 5
    assert len(set(guards(tmp_path))) == 5
