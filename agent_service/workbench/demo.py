"""`agentic demo`: one run from goal to end on a real NATS server, driven by the commands that a person would type.

The run reads two pages, asks a question, is killed while a slow tool works, resumes, and has its letter approved.
"""

import asyncio
import shlex
import sys
from pathlib import Path

import typer
from rich.text import Text

from agent_service.cli import output
from agent_service.cli.options import AS_JSON, invocation
from agent_service.workbench.dev import OUTBOX, DevStack, stack
from agent_service.workbench.dev_settings import DevOptions
from agentic_client import AsyncClient, Run
from groundwork.service import json_log
from groundwork.service.commands import examples, option
from groundwork.service.errors import Exit
from groundwork.service.process import ending_with_us
from groundwork.service.serving import cancelled_by_signals

GOAL = "compare how cellar and attic make copies, and tell the team"
SLOW_STEP = 3
READING_S = 3.0
"""Pause in which the viewer reads and `tail` catches up."""
TRY_AGAIN_S = 2.0


commands = typer.Typer()


@commands.command(epilog=examples("agentic demo"))
def demo(
    folder: Path = option("Where everything is kept.", "--dir", default=Path(".demo"), metavar="FOLDER"),
    as_json: bool = AS_JSON,
) -> None:
    raise typer.Exit(output.run_async(_run_demo(folder, as_json=as_json)))


async def _run_demo(folder: Path, *, as_json: bool) -> Exit:
    """Returns OK if the run is done and its paper trail verifies."""
    json_log.set_up("ERROR", "text")
    demo = _Demo(as_json)
    try:
        with cancelled_by_signals(lambda: demo.say("stopping")):
            demo.say(
                "Starting NATS, the gateway and the agent; a slow machine takes a minute. A script plays the model."
            )
            async with stack(DevOptions(folder=folder, story=True), demo.waits_for) as made:
                return await demo.play(made)
    except asyncio.CancelledError:
        demo.say("everything that was started is stopped")
        return Exit.INTERRUPTED
    finally:
        if folder.is_dir():  # noqa: ASYNC240 - nothing else runs any more
            demo.say(f"\nThe files stay in {folder}. Next: `{invocation()} dev`, the same in your own hands.", "dim")


class _Demo:
    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.where: tuple[str, ...] = ()

    def say(self, text: str, style: str = "") -> None:
        output.console(stderr=self.as_json).print(Text(text, style=style), soft_wrap=True)

    def waits_for(self, what: str) -> None:
        self.say(f"waiting for {what}", "dim")

    async def play(self, made: DevStack) -> Exit:
        self.where = ("--url", made.url)
        self.say(f"\nThe page is {made.url}: open it, everything below happens there too.", "bold")
        while (accepted := await self.command("wake", GOAL)) == Exit.TRY_AGAIN:
            self.say("the agent is not ready yet; the demo tries again", "dim")
            await asyncio.sleep(TRY_AGAIN_S)
        if accepted:
            return Exit(accepted)
        async with AsyncClient(made.url) as agent:
            ended = await self.steer(made, agent, (await agent.runs(limit=1)).runs[0].run_id)
        verified = await self.command("verify", "--config", str(made.config), "last")
        for letter in (made.options.folder / OUTBOX).iterdir():
            self.say(f"\n$ cat {letter}\n{letter.read_text(encoding='utf-8')}")
        agents = made.agent.starts
        self.say(f"The run is {ended.status}. The agent was started {agents} times; every step ran once.", "bold")
        if self.as_json:
            output.print_json({"run": ended.model_dump(mode="json"), "verified": not verified, "agents": agents})
        return Exit(verified) if ended.done else Exit.FAILED

    async def steer(self, made: DevStack, agent: AsyncClient, run: str) -> Run:
        following = asyncio.ensure_future(self.command("tail", "last"))
        try:
            await agent.wait(run)
            await asyncio.sleep(READING_S)
            await self.command("inbox")
            await self.command("answer", "last", "the attic")
            async for event in agent.events(run):
                if event.pending_step == SLOW_STEP:
                    break
            await asyncio.sleep(READING_S)
            self.say(f"\n$ kill -9 {made.agent.pid}    # the agent, while its tool works", "bold red")
            made.agent.kill()
            await agent.wait(run)
            await asyncio.sleep(READING_S)
            await self.command("approve", "last")
            ended = await agent.wait(run)
            await following
        finally:
            following.cancel()
        return ended

    async def command(self, *arguments: str) -> int:
        """Returns its exit code. Its output goes to standard error with `--json`."""
        self.say(f"\n$ {invocation()} {shlex.join(arguments)}", "bold")
        where = self.where if arguments[0] != "verify" else ()
        process = await asyncio.create_subprocess_exec(
            *ending_with_us([sys.executable, "-P", "-m", "agent_service", *arguments, *where]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr if self.as_json else None,
        )
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
