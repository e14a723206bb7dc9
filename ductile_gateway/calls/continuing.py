"""Reads the markdown form in which a tool says how it ended, or what it needs first. Pure.

Only the plugin's own word counts: a page that it fetched must not ask for tools in its name.
"""

from collections.abc import Collection

from pydantic import JsonValue

from ductile_gateway.calls.call import ToolOutcome, Verdict, failed
from schemas.catalog import ToolOffer
from schemas.continuation import Continuation, PluginResult, read_plugin_result
from schemas.markdown_form import is_form
from schemas.values import replace

MAX_BYTES = 64 * 1024
"""Of a continuation: a journal keeps it."""


def reads_form(offer: ToolOffer | None) -> bool:
    return offer is not None and offer.continues and offer.output == "trusted"


def in_words(verdict: Verdict, *, plugin: str, reads: bool) -> Verdict:
    """The verdict that the text of another one tells, if it tells one. `reads`: also where only the text says so."""
    if not isinstance(verdict, ToolOutcome) or verdict.continuation or verdict.status == "error":
        return verdict
    in_form = is_form(verdict.text)
    if verdict.status == "ok" and not (reads and in_form):
        return verdict
    if not in_form:
        return unreadable(verdict, "it has no `continuation`, and its `result` is not in the markdown form")
    try:
        said = read_plugin_result(verdict.text)
    except ValueError as flaws:
        return unreadable(verdict, str(flaws))
    return _told(verdict, said, {plugin, verdict.said_by or plugin})


def unreadable(outcome: ToolOutcome, flaws: str) -> ToolOutcome:
    message = f"what the plugin asks for, or how it went, cannot be read: {flaws}"
    return replace(failed("bad_output", message, retryable=False), job=outcome.job)


def asks_for(continuation: Continuation) -> dict[str, JsonValue]:
    return dict(continuation.model_dump(mode="json", exclude_none=True))


def _told(outcome: ToolOutcome, said: PluginResult, names: Collection[str]) -> ToolOutcome:
    if said.plugin not in names:
        return unreadable(outcome, f"Plugin is {said.plugin[:64]}, and the plugin is {' or '.join(sorted(names))}")
    if said.continuation:
        reason = said.continuation.reason or ""
        return replace(outcome, status="continuation", text=reason, continuation=said.continuation)
    if outcome.status == "continuation":
        return unreadable(outcome, f"Status is {said.status} beside a status `continuation`")
    if said.status == "error":
        return replace(failed("tool_error", said.text, retryable=False), job=outcome.job)
    confidence = {"confidence": said.confidence} if said.confidence else {}
    return replace(outcome, text=said.text, output={**confidence, **outcome.output})
