"""What the demos share: a stack for one run, which is followed to its end, checked and told of; then all is stopped."""

import asyncio
import shlex
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from rich.rule import Rule
from rich.text import Text

from agent_service.cli import output
from agent_service.cli.archive.run_folder import Verified, verify
from agent_service.cli.client import AgentClient, Json
from agent_service.cli.errors import OF_STATUS, Exit
from agent_service.cli.options import invocation
from agent_service.cli.runs.watching import Watcher, to_the_end, watching
from agent_service.workbench.dev import DevOptions, DevStack, stack
from groundwork.service import json_log
from groundwork.service.invisible import visible
from groundwork.service.signals import cancelled_by_signals

WIDTH = 80


@dataclass(frozen=True, kw_only=True)
class Outcome:
    view: Json
    verified: Verified

    @property
    def exit_code(self) -> Exit:
        return OF_STATUS.get(self.view["status"], Exit.FAILED) if self.verified.ok else Exit.FAILED

    def for_programs(self) -> Json:
        return {"run": self.view, "verify": self.verified.for_programs()}


class Story:
    def __init__(self, *, stderr: bool) -> None:
        self.console = output.console(stderr=stderr)

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(visible(text), style=style))

    def line(self, text: str) -> None:
        self.console.print(Text(visible(text)), soft_wrap=True)

    def chapter(self, title: str) -> None:
        self.console.print()
        self.console.print(Rule(Text(visible(title), style="bold"), align="left", style="dim"), width=WIDTH)


async def show(
    title: str, options: DevOptions, play: Callable[[DevStack, Story], Awaitable[Outcome]], *, as_json: bool
) -> Exit:
    json_log.set_up("ERROR", "text", redact=tuple)
    told = Story(stderr=as_json)
    told.chapter(title)
    told.say("starting a NATS server, the gateway and the agent (a scripted model decides: no key is needed)")
    try:
        with cancelled_by_signals(lambda: told.say("stopping")):
            async with stack(options) as made:
                outcome = await play(made, told)
    except asyncio.CancelledError:
        told.say("everything that was started is stopped")
        return Exit.INTERRUPTED
    told.say(f"Everything that was started is stopped. The files stay in {options.folder}", "dim")
    if as_json:
        output.document(outcome.for_programs())
    return outcome.exit_code


async def follow(made: DevStack, goal: str, told: Story, entries: list[Json]) -> Outcome:
    over = threading.Event()
    with AgentClient(made.url, None) as client:
        try:
            view = await asyncio.to_thread(_followed, client, goal, told, entries, over)
        finally:
            over.set()
    return Outcome(view=view, verified=await verify(view["run_id"], made.config))


def tell_the_trail(made: DevStack, outcome: Outcome, told: Story) -> None:
    run_id, verified = outcome.view["run_id"], outcome.verified
    workspace = made.workspaces / run_id
    told.chapter("the paper trail")
    told.line(str(workspace))
    for file in sorted(path for path in workspace.rglob("*") if path.is_file()):
        told.line(f"{file.stat().st_size:>6} bytes  {file.relative_to(workspace)}")
    told.say(str(verified), "green" if verified.ok else "red")
    agentic, config = invocation(), shlex.quote(str(made.options.folder / made.config.name))
    told.chapter("to try yourself")
    told.line("change a page of the paper trail, or an artifact, then:")
    told.line(f"  {agentic} verify --config {config} {run_id}")
    told.line("have everything run until Ctrl-C:")
    told.line(f"  {agentic} dev")


def content(file: Path) -> str:
    try:
        return visible(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return f"cannot be shown: {error}"


def _followed(client: AgentClient, goal: str, told: Story, entries: list[Json], over: threading.Event) -> Json:
    run_id = client.post("/v1/wake", {"goal": goal})["run_id"]
    with watching(client, run_id, told.console) as watcher:
        view = to_the_end(client, run_id, _Noting(watcher, entries, over))
    client.get(f"/v1/runs/{run_id}/workspace")  # which renders its files
    return view


@dataclass(frozen=True, slots=True)
class _Noting(Watcher):
    watcher: Watcher
    entries: list[Json]
    over: threading.Event

    def saw(self, entry: Json) -> None:
        self.entries.append(entry)
        self.watcher.saw(entry)

    def away(self, why: str) -> None:
        if self.over.is_set():
            raise _NobodyWaits
        self.watcher.away(why)


class _NobodyWaits(Exception):
    """The demo was stopped."""
