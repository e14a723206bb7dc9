"""`agentic demo`: the worked example of RFC-103, from goal to end, on a real NATS server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

from rich.text import Text

from agent_service.cli.client import Json
from agent_service.cli.errors import Exit
from agent_service.history.plain import duration
from agent_service.workbench.dev import DevOptions, DevStack
from agent_service.workbench.showing import WIDTH, Outcome, Story, content, follow, show, tell_the_trail

LOOK_S = 0.05


async def run_demo(folder: Path, *, chaos: bool, as_json: bool) -> Exit:
    async def play(made: DevStack, told: Story) -> _Outcome:
        outcome = await _Demo(made, told, chaos=chaos).play()
        _tell(made, outcome, told)
        return outcome

    options = DevOptions(folder=folder, plugin_config={"fetch": {"allow_private": True}})
    return await show("agentic demo", options, play, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crash:
    at: datetime
    pid: int | None
    before: Json
    after: Json

    def for_programs(self) -> Json:
        return {
            "at": self.at.isoformat(),
            "pid": self.pid,
            "pending_step": self.before["pending_step"],
            "last_entry_before": self.before["seq"],
            "first_entry_after": self.after["seq"],
        }


@dataclass(frozen=True, kw_only=True)
class _Outcome(Outcome):
    visits: int
    crash: _Crash | None

    def for_programs(self) -> Json:
        crash = self.crash.for_programs() if self.crash else None
        return super().for_programs() | {"page_visits": self.visits, "crash": crash}


@dataclass
class _Demo:
    made: DevStack
    told: Story
    chaos: bool = field(kw_only=True)
    entries: list[Json] = field(default_factory=list)
    visits: int = 0
    killed: tuple[datetime, int | None] | None = None

    async def play(self) -> _Outcome:
        with _page(self._visited) as url:
            goal = f"fetch web {url} and produce a 2 para critique"
            outcome = await follow(self.made, goal, self.told, self.entries)
        return _Outcome(**vars(outcome), visits=self.visits, crash=self._crash())

    def _visited(self) -> None:
        self.visits += 1
        if self.chaos and self.visits == 1:
            self.killed = datetime.now(UTC), self.made.agent.pid
            self.made.agent.kill()
            self.told.say(f"kill -9 {self.killed[1]}: the agent is dead, while its tool fetches the page", "bold red")

    def _crash(self) -> _Crash | None:
        if self.killed is None:
            return None
        at, pid = self.killed
        after = [datetime.fromisoformat(entry["at"]) > at for entry in self.entries].index(True)
        return _Crash(at=at, pid=pid, before=self.entries[after - 1], after=self.entries[after])


@contextmanager
def _page(visited: Callable[[], None]) -> Iterator[str]:
    page = (resources.files("agent_service") / "scripts" / "page.html").read_bytes()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            visited()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/page.html"
        finally:
            server.shutdown()


def _tell(made: DevStack, outcome: _Outcome, told: Story) -> None:
    if outcome.crash:
        _tell_of_the_crash(made, outcome.crash, outcome.visits, told)
    run_id, artifacts = outcome.view["run_id"], outcome.view["artifacts"]
    if artifacts:
        told.chapter(f"the result: {artifacts[-1]}")
        told.console.print(Text(content(made.workspaces / run_id / artifacts[-1])), width=WIDTH)
    tell_the_trail(made, outcome, told)


def _tell_of_the_crash(made: DevStack, crash: _Crash, visits: int, told: Story) -> None:
    back, before = duration(datetime.fromisoformat(crash.after["at"]) - crash.at), crash.before
    told.chapter("what the crash changed: nothing")
    told.say(
        f"The agent was killed after entry {before['seq']}, with step {before['pending_step']} pending. Process "
        f"{made.agent.pid} took its place. Its first entry, {back} after the kill, is number "
        f"{crash.after['seq']}, and no step was begun again:"
    )
    told.say(f"  {crash.after['summary']}")
    told.say(f"The page was asked for {'once' if visits == 1 else f'{visits} times'}.")
