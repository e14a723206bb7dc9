"""`agentic demo`: the worked example of RFC-103, from goal to end, on a real NATS server.

It starts everything, serves a page on this machine, lets a run fetch and criticise it, checks what the run wrote, shows
where to look, and stops everything. With chaos the agent is killed while the page is being fetched, which is when a
tool request is on the bus and its result is not, and the run goes on at that step.
"""

import asyncio
import shlex
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from agent_service.cli import follow, output, show
from agent_service.cli.board import watching
from agent_service.cli.client import AgentClient, Json
from agent_service.cli.exits import OF_STATUS, Exit
from agent_service.cli.follow import Watcher
from agent_service.cli.invocation import invocation
from agent_service.cli.verify import Verdict, verify
from agent_service.telling.plain import visible
from agent_service.workbench.demo_page import Page
from agent_service.workbench.dev import DevOptions, DevStack, stack
from groundwork.service import json_log
from groundwork.service.signals import cancelled_by_signals

WIDTH = 80


async def run_demo(folder: Path, *, chaos: bool, as_json: bool) -> Exit:
    """OK when the run is done and what it wrote is whole. With `as_json` the story is told on standard error."""
    json_log.set_up("ERROR", "text", redact=())
    told = _Story(output.console(stderr=as_json))
    options = DevOptions(folder=folder, plugin_config={"fetch": {"allow_private": True}})
    told.chapter("agentic demo")
    told.say("starting a NATS server, the gateway and the agent (a scripted model decides: no key is needed)")
    try:
        with cancelled_by_signals(lambda: told.say("stopping")):
            async with stack(options) as made:
                outcome = await _Demo(made, told, chaos=chaos).play()
    except asyncio.CancelledError:
        told.say("everything that was started is stopped")
        return Exit.INTERRUPTED
    told.say(f"Everything that was started is stopped. The files stay in {folder}", "dim")
    if as_json:
        output.document(outcome.for_programs())
    return outcome.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crash:
    """A kill of the agent, and what followed: `after` is the first entry that the agent wrote when it was back."""

    at: datetime
    pid: int | None
    step: int
    before: Json
    after: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """`visits`: how often the page was asked for."""

    view: Json
    verdict: Verdict
    visits: int
    crash: _Crash | None

    @property
    def exit_code(self) -> Exit:
        return OF_STATUS.get(self.view["state"], Exit.FAILED) if self.verdict.ok else Exit.FAILED

    def for_programs(self) -> Json:
        crash = self.crash and {
            "at": self.crash.at.isoformat(),
            "pid": self.crash.pid,
            "pending_step": self.crash.step,
            "last_entry_before": self.crash.before["seq"],
            "first_entry_after": self.crash.after["seq"],
        }
        return {"run": self.view, "verify": self.verdict.for_programs(), "page_visits": self.visits, "crash": crash}


class _Story:
    """What is told, in order."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(visible(text), style=style))

    def line(self, text: str) -> None:
        """One that can be copied as a whole, however long."""
        self.console.print(Text(visible(text)), soft_wrap=True)

    def chapter(self, title: str) -> None:
        self.console.print()
        self.console.print(Rule(Text(visible(title), style="bold"), align="left", style="dim"), width=WIDTH)


class _Demo:
    """One demo on a stack that runs."""

    def __init__(self, made: DevStack, told: _Story, *, chaos: bool) -> None:
        self._made = made
        self._told = told
        self._chaos = chaos
        self._client = AgentClient(made.url, None)
        self._page = Page(self._before_the_page_is_served)
        self._entries: list[Json] = []
        self._killed: tuple[datetime, int | None] | None = None
        self._over = threading.Event()

    async def play(self) -> _Outcome:
        with self._page.served(), self._client:
            try:
                view = await asyncio.to_thread(self._follow)
            finally:
                self._over.set()
        verdict = await verify(view["run_id"], self._made.config)  # which waits until all of it is written
        outcome = _Outcome(view=view, verdict=verdict, visits=self._page.visits, crash=self._crash())
        self._tell_of(outcome)
        return outcome

    def _follow(self) -> Json:
        """In a thread."""
        goal = f"fetch web {self._page.url} and produce a 2 para critique"
        run_id = self._client.post("/v1/wake", {"goal": goal})["run_id"]
        with watching(lambda: self._client.run(run_id), self._told.console, stays=True) as watcher:
            return follow.to_the_end(self._client, run_id, _Noting(watcher, self._entries, self._over)).view

    def _before_the_page_is_served(self) -> None:
        """In a thread of the page's server. The tool waits for the page now: its result cannot be in."""
        if self._chaos:
            self._killed = datetime.now(UTC), self._made.agent.pid
            self._made.agent.kill()
            self._told.say(f"kill -9 {self._killed[1]}: the agent is dead, while its tool fetches the page", "bold red")

    def _crash(self) -> _Crash | None:
        if self._killed is None:
            return None
        at, pid = self._killed
        later = [datetime.fromisoformat(entry["at"]) > at for entry in self._entries]
        after = later.index(True)
        before = self._entries[after - 1]
        return _Crash(at=at, pid=pid, step=before["pending_step"], before=before, after=self._entries[after])

    def _tell_of(self, outcome: _Outcome) -> None:
        if outcome.crash:
            self._tell_of_the_crash(outcome.crash)
        run_id, artifacts = outcome.view["run_id"], outcome.view["artifacts"]
        workspace = self._made.workspaces / run_id
        if artifacts:
            self._told.chapter(f"the result: {artifacts[-1]}")
            self._told.console.print(Text(_content(workspace / artifacts[-1])), width=WIDTH)
        self._told.chapter("the paper trail")
        self._told.line(str(workspace))
        for file in sorted(path for path in workspace.rglob("*") if path.is_file()):
            self._told.line(f"{file.stat().st_size:>6} bytes  {file.relative_to(workspace)}")
        self._told.say(str(outcome.verdict), "green" if outcome.verdict.ok else "red")
        self._tell_how_to_go_on(run_id)

    def _tell_of_the_crash(self, crash: _Crash) -> None:
        back = show.seconds(datetime.fromisoformat(crash.after["at"]) - crash.at)
        self._told.chapter("what the crash changed: nothing")
        self._told.say(
            f"The agent was killed after entry {crash.before['seq']}, with step {crash.step} pending. Process "
            f"{self._made.agent.pid} took its place. Its first entry, {back} after the kill, is number "
            f"{crash.after['seq']}, and no step was begun again:"
        )
        self._told.say(f"  {crash.after['summary']}")
        self._told.say(f"The page was asked for {_times(self._page.visits)}.")

    def _tell_how_to_go_on(self, run_id: str) -> None:
        agentic, config = invocation(), shlex.quote(str(self._made.options.folder / self._made.config.name))
        self._told.chapter("to try yourself")
        self._told.line("change a page of the paper trail, or delete it (what is in artifacts/ lies on the bus), then:")
        self._told.line(f"  {agentic} verify  --config {config} {run_id}")
        self._told.line(f"  {agentic} rebuild --config {config} {run_id}")
        self._told.line("have everything run until Ctrl-C:")
        self._told.line(f"  {agentic} dev")


class _Noting:
    """Keeps the entries, and ends the watching when nobody waits for it any more. Fills Watcher."""

    def __init__(self, watcher: Watcher, entries: list[Json], over: threading.Event) -> None:
        self._watcher = watcher
        self._entries = entries
        self._over = over

    def saw(self, entry: Json) -> None:
        self._entries.append(entry)
        self._watcher.saw(entry)

    def away(self, why: str) -> None:
        if self._over.is_set():
            raise _NobodyWaits
        self._watcher.away(why)


class _NobodyWaits(Exception):
    """The demo was stopped."""


def _content(file: Path) -> str:
    try:
        return visible(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return f"cannot be shown: {error}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
