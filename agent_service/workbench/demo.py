"""`agentic demo`: one run from goal to end on a real NATS server, shown by the commands that show any run.

The goal is the worked example of RFC-103, or (`--z3`) constraints that contradict each other, for a tool that looks up
what may be relaxed before it answers.
"""

import asyncio
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from rich.text import Text

from agent_service.cli import output
from agent_service.cli.options import invocation
from agent_service.workbench.dev import DevStack, stack
from agent_service.workbench.dev_settings import DevOptions
from agentic_client import Client
from agentic_client.calls import Json
from groundwork.service import json_log
from groundwork.service.errors import Misconfigured
from groundwork.service.exits import Exit
from groundwork.service.invisible import visible
from groundwork.service.process import tied_to_us
from groundwork.service.serving import cancelled_by_signals

LOOK_S = 0.05
EQUIP = (
    "Equip at least 12 workplaces: a seat costs 900, which is fixed, the budget is 10000, and the house has room for "
    "100. Have z3-solver find the number of seats and the cost; where limits contradict each other, relax only what "
    "our pages allow, and say what it was."
)


async def run_demo(folder: Path, *, chaos: bool, z3: bool, as_json: bool) -> Exit:
    """OK when the run is done and its paper trail is whole. Raises Misconfigured for `z3` without the solver."""
    if z3 and find_spec("z3") is None:
        raise Misconfigured(
            "the solver is not installed: pip install 'agentic-loop-nats[z3]', or from a checkout: make setup"
        )
    json_log.set_up("ERROR", "text", redact=tuple)
    demo = _Demo(chaos, as_json)
    try:
        with cancelled_by_signals(lambda: demo.say("stopping")), _page(demo.visited) as url:
            goal = EQUIP if z3 else f"fetch web {url} and produce a 2 para critique"
            demo.say("starting a NATS server, the gateway and the agent (a scripted model decides: no key is needed)")
            async with stack(_options(folder, z3=z3)) as made:
                return await demo.play(made, goal)
    except asyncio.CancelledError:
        demo.say("everything that was started is stopped")
        return Exit.INTERRUPTED
    finally:
        demo.say(f"The files stay in {folder}", "dim")


def _options(folder: Path, *, z3: bool) -> DevOptions:
    if not z3:
        return DevOptions(folder=folder, plugin_config={"fetch": {"allow_private": True}})
    return DevOptions(folder=folder, script=Path(str(resources.files("agent_service") / "scripts" / "solving.yaml")))


@dataclass
class _Demo:
    chaos: bool
    as_json: bool
    visits: int = 0
    made: DevStack | None = None
    killed: tuple[datetime, int | None] | None = None

    def say(self, text: str, style: str = "") -> None:
        output.console(stderr=self.as_json).print(Text(visible(text), style=style), soft_wrap=True)

    async def play(self, made: DevStack, goal: str) -> Exit:
        self.made = made
        ended = await self._command("run", "--watch", goal)
        run, entries = await asyncio.to_thread(_newest, made.url)
        run_id = run["run_id"]
        crash = self._crash(entries) if self.killed else None
        for artifact in run["artifacts"][-1:]:
            await self._command("cat", run_id, artifact)
        await self._command("cat", run_id)
        verified = await self._command("verify", "--config", str(made.config), run_id)
        if self.as_json:
            told = {"run": run, "verified": verified == Exit.OK, "page_visits": self.visits, "crash": crash}
            output.document(told)
        return Exit(ended or verified)

    async def _command(self, *arguments: str) -> int:
        """Its exit code; what it prints is seen, and with `--json` on standard error."""
        self.say(f"\n$ {invocation()} {shlex.join(arguments)}", "bold")
        where = ("--url", self.made.url) if self.made and arguments[0] != "verify" else ()
        command = [sys.executable, "-m", "agent_service", *arguments, *where]
        process = await asyncio.create_subprocess_exec(
            *tied_to_us(command), stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr if self.as_json else None
        )
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def visited(self) -> None:
        self.visits += 1
        if self.chaos and self.visits == 1 and self.made:
            self.killed = datetime.now(UTC), self.made.agent.pid
            self.made.agent.kill()
            self.say(f"kill -9 {self.killed[1]}: the agent is dead, while its tool fetches the page", "bold red")

    def _crash(self, entries: list[Json]) -> Json | None:
        if self.killed is None or self.made is None:
            return None
        at, pid = self.killed
        first = [datetime.fromisoformat(entry["at"]) > at for entry in entries].index(True)
        before, after = entries[first - 1], entries[first]
        self.say(
            f"\nThe agent was killed after entry {before['seq']}, with step {before['pending_step']} pending. Process "
            f"{self.made.agent.pid} took its place and went on with entry {after['seq']}: {after['summary']}. No step "
            f"was begun again; the page was asked for {'once' if self.visits == 1 else f'{self.visits} times'}."
        )
        told = {"at": at.isoformat(), "pid": pid, "pending_step": before["pending_step"]}
        return told | {"last_entry_before": before["seq"], "first_entry_after": after["seq"]}


def _newest(url: str) -> tuple[Json, list[Json]]:
    """The newest run, and its entries."""
    with Client(url) as client:
        path = {"run_id": client.runs(limit=1).runs[0].run_id}
        return client.ask("show_run", path), client.ask("list_entries", path)["entries"]


@contextmanager
def _page(visited: Callable[[], None]) -> Iterator[str]:
    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            visited()
            super().do_GET()

        def log_message(self, *_: object) -> None:
            return

    folder = str(resources.files("agent_service") / "scripts")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/page.html"
        finally:
            server.shutdown()
