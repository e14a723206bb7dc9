"""`agentic dev`: the whole stack in one terminal, with one line per event from the logs of both services."""

import asyncio
import json
import os
import shlex
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from rich.panel import Panel
from rich.text import Text

from agent_service import settings
from agent_service.cli import output
from agent_service.cli.locate import DEFAULT_URL
from agent_service.cli.options import AS_JSON, CONFIG, invocation
from agent_service.core.phases import Phase
from agent_service.history.log_line import FOR_MACHINES
from agent_service.models.scripted_model import read_script
from agent_service.settings import KEYS
from agent_service.workbench.dev import POLL_S, DevStack, Service, check_that_both_can_start, stack
from agent_service.workbench.dev_settings import PLUGINS, DevOptions, names_a_model
from groundwork.service import json_log
from groundwork.service.commands import examples, option
from groundwork.service.config_file import nearby
from groundwork.service.errors import ClosedPipe, Exit, Misconfigured
from groundwork.service.invisible import visible
from groundwork.service.serving import cancelled_by_signals

LOG_POLL_S = 0.2
MAX_PORT = 65535
ENDED = ("done", "escalated", "failed", "cancelled")
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
    starting = console.status("starting NATS, the gateway and the agent")
    with suppress(asyncio.CancelledError), cancelled_by_signals(lambda: console.print("stopping", style="dim")):
        starting.start()
        try:
            async with stack(options, lambda what: starting.update(f"waiting for {what}")) as made:
                starting.stop()
                _announce(made, as_json)
                await _until_stopped(made, as_json)
        finally:
            starting.stop()
    return Exit.OK


def _check_free(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        what = f"port {port} of 127.0.0.1 cannot be had ({os.strerror(error.errno or 0)})"
        raise Misconfigured(f"{what}: stop what listens there, or choose another with --http-port") from error


async def _until_stopped(made: DevStack, as_json: bool) -> None:
    """Raises Misconfigured once a service cannot start, which may show late."""
    printers = [] if as_json else [asyncio.ensure_future(_print_log(service)) for service in (made.agent, made.gateway)]
    try:
        while True:
            check_that_both_can_start(made)
            await asyncio.sleep(POLL_S)
    finally:
        for task in printers:
            task.cancel()


async def _print_log(service: Service) -> None:
    with suppress(ClosedPipe), service.log_file.open("rb") as log:
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
        is_end = str(fields.get("state_transition")).endswith(ENDED)
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
    agentic, at = invocation(), "" if url == DEFAULT_URL else f"--url {url} "
    to_try = (
        f"{agentic} run {at}--watch 'show me how this works'",
        f"{agentic} doctor --config {shlex.quote(config)}",
        f"nats --server \"$(cat {shlex.quote(os.path.relpath(made.login))})\" sub 'agentic.>' 'agent.>'",
    )
    again = Text.assemble(("in another terminal", "bold"), *(f"\n  {line}" for line in to_try))
    output.draw(again, wrap=False)  # every line can be copied as a whole, however long
