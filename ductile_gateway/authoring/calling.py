"""One call of one tool by hand, as the gateway would make it: the same check of its arguments, the same process in the
same box, the same reading of what it answers. Neither bus nor agent take part, and nothing is remembered."""

import asyncio
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import JsonValue, ValidationError

from ductile_gateway.calls import policy, results
from ductile_gateway.calls.artifacts import artifact_arguments, content_type_of, path_of, text_in
from ductile_gateway.calls.call import Asked, Intent, Receipt, ToolCall, ToolOutcome, failed, read_again
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.calls.policy import Offers
from ductile_gateway.calls.results import Kept, made_fit
from ductile_gateway.foundations import open_tools
from ductile_gateway.plugins.runner import LocalPlugins
from ductile_gateway.ports import ToolRunner
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store.opening import open_alone
from ductile_gateway.tools.toolbox import Tools, find_tools
from groundwork.service.serving import cancelled_by_signals
from schemas import subjects
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import Envelope, ToolRequest
from schemas.fields import flaws_of
from schemas.values import dataclass, replace

Arguments = Mapping[str, JsonValue]


class NotCallable(Exception):
    """It cannot be called like this; the message says why, and what there is."""


@dataclass(frozen=True, slots=True)
class Called:
    """`outcome`: as an event would carry it. `kept`: artifacts by name. `stderr`: its end. `seconds`: how long it
    took."""

    outcome: ToolOutcome
    kept: tuple[Kept, ...]
    stderr: str
    seconds: float


async def call(settings: GatewaySettings, tool: str, command: str, arguments: Arguments) -> Called:
    """A signal to the process cancels it, which ends the call. Raises NotCallable, Misconfigured, TryAgain."""
    tools = await find_tools(settings)
    intent, offer, given = _ready(tools, tool, command, arguments)
    with cancelled_by_signals(lambda: None), TemporaryDirectory(prefix="agentic-call-") as place:
        folder = Path(place)
        async with (
            open_alone(folder) as rows,
            open_tools(settings, tools, ledger := Ledger(rows), folder) as runner,
        ):
            return await _called(ToolCall.of(intent, given), intent, offer, runner, ledger)


def _ready(tools: Tools, tool: str, command: str, arguments: Arguments) -> tuple[Intent, ToolOffer, Arguments]:
    offers = Offers()
    offers.replace(tools.catalog)
    offer = offers.find(tool)
    if offer is None:
        there = ", ".join(one.name for one in tools.catalog.tools) or "none at all"
        why = f"there is no tool {tool}: there is {there}"
        raise NotCallable("; ".join((why, *dict.fromkeys((*tools.problems, *tools.lacking)))))
    spoken_of = offer.command(command)
    if spoken_of is None:
        there = ", ".join(one.name for one in offer.commands)
        raise NotCallable(f"tool {tool} has no command {command}: it has {there}")
    named, given = _with_files(spoken_of, arguments)
    try:
        asked = _asked(offer, command, named)
    except ValidationError as error:
        raise NotCallable(f"no agent can send these arguments: {flaws_of(error)}") from None
    admitted = policy.admit(asked, offer, flaw=offers.flaw(asked), now=datetime.now(UTC))
    if isinstance(admitted, ToolOutcome):
        raise NotCallable(admitted.message or "it is refused")
    return admitted, offer, given


def _with_files(command: ToolCommand, arguments: Arguments) -> tuple[Arguments, Arguments]:
    named, given = dict(arguments), dict(arguments)
    for argument, path in artifact_arguments(command, arguments).items():
        file = Path(str(path))
        try:
            text = text_in(file.name, file.read_bytes())
        except OSError as error:
            raise NotCallable(f"{argument}: the file {file} cannot be read: {error.strerror}") from error
        if text is None:
            raise NotCallable(f"{argument}: the file {file} is not text")
        named[argument] = path_of(file.name)
        given[argument] = {"path": path_of(file.name), "content_type": content_type_of(file.name), "text": text}
    return named, given


def _asked(offer: ToolOffer, command: str, arguments: Arguments) -> Asked:
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


async def _called(call: ToolCall, intent: Intent, offer: ToolOffer, runner: ToolRunner, ledger: Ledger) -> Called:
    async def begin(receipt: Receipt | None = None) -> None:
        await ledger.intend(intent, receipt)

    began = time.monotonic()
    try:
        verdict = await runner.run(call, begin)
    except asyncio.CancelledError:
        if isinstance(runner, LocalPlugins):
            await runner.stop(call.key)
        raise
    seconds = time.monotonic() - began
    verdict = results.in_words(verdict, plugin=call.plugin, reads=results.reads_form(offer))
    outcome = made_fit(policy.after_run(verdict, intent))
    if outcome.status == "continuation" and not offer.continues:
        message = (
            f"{offer.name} says of itself that it never asks for more (`continues: false`), and an agent heeds that"
        )
        outcome = replace(failed("bad_continuation", message, retryable=False), job=outcome.job)
    stderr = runner.said(call.key) if isinstance(runner, LocalPlugins) else outcome.job.stderr
    kept = tuple(Kept(artifact.name, artifact) for artifact in outcome.artifacts)
    return Called(replace(outcome, artifacts=()), kept, stderr, seconds)
