"""`ductile-gateway call`: calls one tool as the gateway would, without bus and agent, and stores nothing.

Arguments are checked, the process is sandboxed and its answer is read in the same way.
"""

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from pydantic import JsonValue, ValidationError

from ductile_gateway.calls import policy, results
from ductile_gateway.calls.artifacts import artifact_argument, artifact_path
from ductile_gateway.calls.call import CallRequest, ToolCall, ToolOutcome, failed, read_again
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.calls.policy import Offers, reads_form
from ductile_gateway.calls.results import fit_for_event, output_of
from ductile_gateway.cli.main import AS_JSON, CONFIG_NEARBY, EXAMPLE, NAME, TOOLS_FOLDER, settings_for_tools
from ductile_gateway.ductile.jobs import DuctileHealth
from ductile_gateway.plugins.runner import LocalPlugins
from ductile_gateway.ports import ToolRunner
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store.opening import open_alone
from ductile_gateway.tools.toolbox import FoundTools, find_tools, open_runner
from groundwork.service import strict
from groundwork.service.commands import argument, examples, option, say
from groundwork.service.errors import Exit, Misconfigured, TryAgain, Unreachable
from groundwork.service.invisible import json_visible
from groundwork.service.serving import cancelled_by_signals
from schemas import subjects
from schemas.catalog import ToolOffer
from schemas.events import Envelope, ToolRequest
from schemas.fields import validation_flaws
from schemas.values import replace

commands = typer.Typer()

Arguments = Mapping[str, JsonValue]


async def make_call(
    settings: GatewaySettings, tool: str, command: str, arguments: Arguments
) -> tuple[ToolOutcome, float]:
    """Outcome, as an event would carry it, and seconds. A signal cancels the call. Raises typer.BadParameter,
    Misconfigured and TryAgain."""
    tools = await find_tools(settings)
    call, offer = _admit(tools, tool, command, arguments)
    with cancelled_by_signals(lambda: None), TemporaryDirectory(prefix="agentic-call-") as place:
        folder, healths = Path(place), {name: DuctileHealth() for name in settings.every_ductile()}
        async with (
            open_alone(folder) as rows,
            open_runner(
                settings, tools, ledger := Ledger(rows), folder, healths=healths, on_start=lambda *_: None
            ) as runner,
        ):
            return await _called(call, offer, runner, ledger)


def _admit(tools: FoundTools, tool: str, command: str, arguments: Arguments) -> tuple[ToolCall, ToolOffer]:
    offers = Offers()
    offers.replace(tools.catalog)
    offer = offers.find(tool)
    if offer is None:
        names = ", ".join(one.name for one in tools.catalog.tools) or "none at all"
        why = f"there is no tool {tool}: there is {names}"
        raise typer.BadParameter("; ".join((why, *tools.problems, *tools.lacking)))
    offered = offers.command(tool, command)
    if offered is None:
        names = ", ".join(one.name for one in offer.commands)
        raise typer.BadParameter(f"tool {tool} has no command {command}: it has {names}")
    named, given = _with_files(offered.artifacts, arguments)
    try:
        asked = _asked(offer, command, named)
    except ValidationError as error:
        raise typer.BadParameter(f"no agent can send these arguments: {validation_flaws(error)}") from None
    admitted = offers.admit(asked, now=datetime.now(UTC))
    if isinstance(admitted, ToolOutcome):
        raise typer.BadParameter(admitted.message or "it is refused")
    return replace(admitted, payload=given), offer


def _with_files(artifacts: Iterable[str], arguments: Arguments) -> tuple[Arguments, Arguments]:
    named, given = dict(arguments), dict(arguments)
    for name in (name for name in artifacts if arguments.get(name) is not None):
        file = Path(str(arguments[name]))
        try:
            given[name] = artifact_argument(file.name, file.read_bytes())
        except OSError as error:
            raise typer.BadParameter(f"{name}: the file {file} cannot be read: {error.strerror}") from error
        if given[name] is None:
            raise typer.BadParameter(f"{name}: the file {file} is not text")
        named[name] = artifact_path(file.name)
    return named, given


def _asked(offer: ToolOffer, command: str, arguments: Arguments) -> CallRequest:
    request = ToolRequest(
        run_id=f"by-hand-{secrets.token_hex(6)}",
        step=1,
        tool=offer.name,
        tool_command=command,
        tool_payload=dict(arguments),
        requested_at=datetime.now(UTC),
    )
    message = Envelope[ToolRequest](type=subjects.tool_request(offer.route), payload=request)
    return read_again(offer.route, message.body(), trace=None)


async def _called(call: ToolCall, offer: ToolOffer, runner: ToolRunner, ledger: Ledger) -> tuple[ToolOutcome, float]:
    began = time.monotonic()
    try:
        verdict = await runner.run(call, partial(ledger.intend, call))
    except asyncio.CancelledError:
        if isinstance(runner, LocalPlugins):
            await runner.stop(call.key)
        raise
    seconds = time.monotonic() - began
    verdict = results.with_markdown_form(verdict, plugin=call.plugin, reads=reads_form(offer))
    outcome = fit_for_event(policy.after_run(verdict, call))
    if outcome.status == "continuation" and not offer.continues:
        message = f"{offer.name} says of itself that it never asks for more (`continues: false`): an agent refuses it"
        outcome = replace(failed("bad_continuation", message, retryable=False), job=outcome.job)
    return outcome, seconds


@commands.command(
    epilog=examples(f"{NAME} call words handle '{EXAMPLE}'", f"{NAME} call text-report handle - <arguments.json")
)
def call(
    tool: str = argument("The tool.", "TOOL"),
    command: str = argument("Its command.", "COMMAND"),
    arguments: str = argument("A JSON object; - reads it from standard input.", "ARGUMENTS", default="{}"),
    config: Path | None = CONFIG_NEARBY,
    tools: Path | None = TOOLS_FOLDER,
    artifacts: Path | None = option("Keep the artifacts that it brings in this folder.", metavar="FOLDER"),
    as_json: bool = AS_JSON,
) -> None:
    """A write is carried out.

    Exit code 1 if the tool fails. An artifact argument names a file of this machine.
    """
    settings = settings_for_tools(config, tools)
    try:
        outcome, seconds = asyncio.run(make_call(settings, tool, command, _object(arguments)))
    except TryAgain as error:
        raise Unreachable(str(error)) from error
    except asyncio.CancelledError:
        raise typer.Exit(Exit.INTERRUPTED) from None
    if artifacts:
        _keep(outcome, artifacts)
    document = json_visible(json.dumps(_as_document(outcome, seconds), ensure_ascii=False)) if as_json else ""
    say(document or _as_text(outcome, seconds))
    raise typer.Exit(Exit.FAILED if outcome.status == "error" else Exit.OK)


def _object(arguments: str) -> dict[str, Any]:
    try:
        given = strict.read(sys.stdin.buffer.read() if arguments == "-" else os.fsencode(arguments))
        if isinstance(given, dict):
            return given
        why = "is no JSON object"
    except strict.NotStrictJson as error:
        why = str(error)
    raise typer.BadParameter(f"ARGUMENTS {why}: give a JSON object, such as '{EXAMPLE}'")


def _as_document(outcome: ToolOutcome, seconds: float) -> dict[str, Any]:
    document: dict[str, Any] = {"status": outcome.status, "seconds": round(seconds, 3), "stderr": outcome.job.stderr}
    if outcome.status == "error":
        error = {"class": outcome.error_class, "message": outcome.message, "retryable": outcome.retryable}
        return document | {"error": error}
    return document | {"result": output_of(outcome).as_json()}


def _as_text(outcome: ToolOutcome, seconds: float) -> str:
    if outcome.status == "error":
        again = "another try may help" if outcome.retryable else "another try does not help"
        lines = [f"✗ {outcome.error_class} after {seconds:.2f} s ({again})", outcome.message or ""]
    else:
        lines = [f"✓ {outcome.status} after {seconds:.2f} s", outcome.text]
    if outcome.continuation:
        lines.append(f"continuation: {outcome.continuation.model_dump_json(exclude_none=True)}")
    if outcome.output:
        lines.append(f"output: {json.dumps(dict(outcome.output), ensure_ascii=False)}")
    for one in outcome.artifacts:
        lines.append(f"artifact: {one.name} ({one.content_type}, {len(one.content)} bytes)")
    if outcome.job.stderr:
        lines.append(f"on standard error:\n{outcome.job.stderr}")
    return "\n".join(line for line in lines if line)


def _keep(outcome: ToolOutcome, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = [one.name for one in outcome.artifacts]
        for place, one in enumerate(outcome.artifacts):
            (folder / (f"{place + 1}-{one.name}" if one.name in names[:place] else one.name)).write_bytes(one.content)
    except OSError as error:
        raise Misconfigured(f"{error.filename} cannot be written: {error.strerror}") from error
