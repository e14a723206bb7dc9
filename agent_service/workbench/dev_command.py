"""`agentic dev` and `agentic demo`: the whole stack in one terminal.

`dev` shows one line per event from the logs of both services. `demo` plays one run by the commands that a person would
type: it reads two pages, asks a question, is killed while a slow tool works, resumes, and has its letter approved.
"""

import asyncio
import json
import os
import shlex
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from rich.panel import Panel
from rich.text import Text

from agent_service import settings
from agent_service.cli import output
from agent_service.cli.options import AS_JSON, CONFIG, invocation
from agent_service.core.phases import Phase
from agent_service.history.log_line import FOR_MACHINES
from agent_service.models.scripted_model import read_script
from agent_service.models.settings import KEYS
from agent_service.workbench.dev import OUTBOX, POLL_S, DevStack, Service, in_background, stack
from agent_service.workbench.dev_settings import PLUGINS, DevOptions, names_a_model
from agentic_client import AsyncClient, Run
from agentic_client.calls import HERE
from agentic_client.views import FINAL
from groundwork.service import json_log
from groundwork.service.commands import examples, option
from groundwork.service.config_file import nearby
from groundwork.service.errors import Exit, Misconfigured
from groundwork.service.invisible import visible
from groundwork.service.process import ending_with_us
from groundwork.service.program import own_command
from groundwork.service.serving import cancelled_by_signals

LOG_POLL_S = 0.2
MAX_PORT = 65535
SHOWN_EVENTS = frozenset({"WakeAccepted", "ToolReturned", "other tools are on offer"})
"""Events and messages to show besides ends of runs and warnings."""
HIDDEN_FIELDS = FOR_MACHINES | {"state_transition", "step", "tool", "call", "attempt", "job_id", "exit_code"}


commands = typer.Typer()


@commands.command(
    epilog=examples("agentic dev", "agentic dev --tools tools", "agentic dev --dir /tmp/try --http-port 0"),
)
def dev(
    folder: Path = option("Where everything is kept.", "--dir", default=Path(".agentic"), metavar="FOLDER"),
    http_port: int = option("Port of the HTTP API; 0 takes a free one.", default=8700, min=0, max=MAX_PORT),
    nats_port: int = option("Port of the NATS server; 0 takes a free one.", default=0, min=0, max=MAX_PORT),
    script: Path | None = option("A script for the scripted model.", exists=True, dir_okay=False, metavar="FILE"),
    tools: list[Path] | None = option(
        "A folder of further tools; changes in it count at once.",
        "--tools",
        "--plugins",
        exists=True,
        file_okay=False,
        metavar="FOLDER",
    ),
    config: Path | None = CONFIG,
    as_json: bool = AS_JSON,
) -> None:
    """Uses the settings file, except its places and addresses. If it names no model, Claude decides where
    ANTHROPIC_API_KEY is set and no script is given; otherwise a script plays the model."""
    file = nearby(config)
    is_open = script is None and not names_a_model(file)
    thinks = is_open and bool(os.environ.get(KEYS["anthropic"]))
    options = DevOptions(
        folder=folder,
        http_port=http_port,
        nats_port=nats_port,
        script=script,
        plugins=(*(path.absolute() for path in tools or ()), PLUGINS),
        agent={"model": {"provider": "anthropic"}} if thinks else {},
        file=file,
        story=is_open and not thinks and file is None,
    )
    raise typer.Exit(output.run_async(_run_dev(options, as_json=as_json)))


async def _run_dev(options: DevOptions, *, as_json: bool) -> Exit:
    json_log.set_up("WARNING", "json" if as_json else "text")
    _check_free(options.http_port)
    if options.script:
        read_script(options.script)
    console = output.console(stderr=True)
    status = console.status("starting NATS, the gateway and the agent")
    stopping = cancelled_by_signals(lambda: console.print("stopping", style="dim"))
    with suppress(asyncio.CancelledError), stopping, status as starting:
        async with stack(options, lambda what: starting.update(f"waiting for {what}")) as made:
            starting.stop()
            _announce(made, as_json)
            async with in_background(*map(_print_log, () if as_json else (made.agent, made.gateway))):
                while True:  # it may show late that a service cannot start
                    made.check()
                    await asyncio.sleep(POLL_S)
    return Exit.OK


def _check_free(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        what = f"port {port} of 127.0.0.1 cannot be had ({os.strerror(error.errno or 0)})"
        raise Misconfigured(f"{what}: stop what listens there, or choose another with --http-port") from error


async def _print_log(service: Service) -> None:
    with suppress(BrokenPipeError), service.log_file.open("rb") as log:
        log.seek(service.log_begins)
        written = b""
        while True:
            written += log.readline()
            if not written.endswith(b"\n"):
                await asyncio.sleep(LOG_POLL_S)
                continue
            if line := display_line(written.decode(errors="replace")):
                output.draw(line, wrap=False)
            written = b""


def display_line(written: str) -> Text | None:
    """Formats a line of a service's log; None for a line to skip or one that is not JSON of ours."""
    try:
        fields = json.loads(written)
        is_notable = fields["level"] != "INFO"
        is_end = str(fields.get("state_transition")).endswith(tuple(FINAL))
        if not is_notable and not is_end and SHOWN_EVENTS.isdisjoint((fields.get("event"), fields["msg"])):
            return None
        return Text(visible(json_log.as_text(fields, aside=HIDDEN_FIELDS)), style="yellow" if is_notable else "")
    except (ValueError, TypeError, KeyError):  # what a library or the system wrote there
        return None


def _announce(made: DevStack, as_json: bool) -> None:
    folder, url, config = made.options.folder, made.url, str(made.config)
    facts: dict[str, Any] = {
        "url": url,
        "nats": made.nats.url,
        "config": config,
        "workspaces": str(made.workspaces),
        "logs": str(folder / "logs"),
        "pids": {"agent": made.agent.pid, "gateway": made.gateway.pid},
    }
    if as_json:
        output.print_json(facts)
        return
    model = settings.load(made.config).model
    thinker = f"{model.of(Phase.PLAN).model} ({model.provider}); its calls are charged to your key"
    if model.provider == "scripted":
        hint = "" if names_a_model(made.options.file) else "; set ANTHROPIC_API_KEY for Claude"
        thinker = f"scripted: it follows a script and does not think{hint}"
    rows = {
        "page": f"{url}  (HTTP API: {url}/docs)",
        "NATS": f"{made.nats.address}, with the login in {made.login}",
        "model": thinker,
        "workspaces": facts["workspaces"],
        "logs": facts["logs"],
        "configuration": f"{config}{f', made of {made.options.file}' if made.options.file else ''}",
    }
    lines = [Text.assemble((f"{name:15}", "bold"), text) for name, text in rows.items()]
    killing = f"\nkill -9 {made.agent.pid} kills the agent: it is started again, and its runs go on. "
    lines.append(Text(f"{killing}Ctrl-C stops everything.", style="dim"))
    output.draw(Panel(Text("\n").join(lines), title="agentic dev", title_align="left", expand=False))
    agentic, at = invocation(), "" if url == HERE else f"--url {url} "
    to_try = (
        f"{agentic} run {at}--watch 'show me how this works'",
        f"{agentic} doctor --config {shlex.quote(config)}",
        f"nats --server \"$(cat {shlex.quote(os.path.relpath(made.login))})\" sub 'agentic.>' 'agent.>'",
    )
    again = Text.assemble(("in another terminal", "bold"), *(f"\n  {line}" for line in to_try))
    output.draw(again, wrap=False)  # every line can be copied as a whole, however long


GOAL = "compare how cellar and attic make copies, and tell the team"
SLOW_STEP = 3
READING_S = 3.0
"""Pause in which the viewer reads and `tail` catches up."""
TRY_AGAIN_S = 2.0


@commands.command(epilog=examples("agentic demo"))
def demo(
    folder: Path = option("Where everything is kept.", "--dir", default=Path(".demo"), metavar="FOLDER"),
    as_json: bool = AS_JSON,
) -> None:
    raise typer.Exit(output.run_async(_run_demo(folder, as_json=as_json)))


async def _run_demo(folder: Path, *, as_json: bool) -> Exit:
    json_log.set_up("ERROR", "text")
    demo = _Demo(as_json)
    try:
        with cancelled_by_signals(lambda: demo.say("stopping")):
            demo.say(
                "Starting NATS, the gateway and the agent; a slow machine takes a minute. A script plays the model."
            )
            options = DevOptions(folder=folder, story=True)
            async with stack(options, lambda what: demo.say(f"waiting for {what}", "dim")) as made:
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
        self.environment = dict(os.environ)

    def say(self, text: str, style: str = "") -> None:
        output.console(stderr=self.as_json).print(Text(text, style=style), soft_wrap=True)

    async def play(self, made: DevStack) -> Exit:
        self.environment["AGENTIC_URL"] = made.url
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
        process = await asyncio.create_subprocess_exec(
            *ending_with_us(own_command("agent_service", *arguments)),
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr if self.as_json else None,
        )
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
