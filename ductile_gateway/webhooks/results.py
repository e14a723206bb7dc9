"""Results from outside that need something first, or are too large for an event. Pure.

A continuation beside `ok` counts only for a tool of ours that may continue, and not where strangers may have written
it; the agent reads it. An artifact's name holds a hash of its content: another delivery for the same step never
replaces it.
"""

import re
from collections.abc import Callable

from pydantic import JsonValue

from ductile_gateway.calls.artifacts import SUFFIXES, media_type
from ductile_gateway.calls.call import ProducedArtifact, ToolOutcome
from ductile_gateway.calls.results import Kept, made_fit, output_of, reads_form
from schemas.catalog import ToolOffer
from schemas.events import ToolOutput, ToolResult
from schemas.markdown_form import is_form

_ASKS = re.compile(r"^Status:[ \t]*continuation\b", re.MULTILINE | re.IGNORECASE)
_TEXTS = ("summary", "result")
"""Where a plugin's text is: by itself, and as Ductile fills it in behind a pipeline's step."""
MAX_INLINE_BYTES = 16 * 1024
"""A result is kept in the journal and shown to the model in every later prompt."""
LONGEST_TOOL = 48

FindOffer = Callable[[str], ToolOffer | None]


def as_said(result: ToolResult, find_offer: FindOffer) -> ToolResult:
    """The result with the status `continuation` where it asks for something beside `ok`."""
    if result.status != "ok" or result.untrusted or not reads_form(find_offer(result.tool)):
        return result
    fields = _fields(result)
    text = next((value for name in _TEXTS if isinstance(value := fields.get(name), str)), "")
    if fields.get("continuation") is None and not (is_form(text) and _ASKS.search(text)):
        return result
    asked = ToolOutput.model_validate(fields | {"summary": text})
    return result.model_copy(update={"status": "continuation", "result": asked})


def made_small(result: ToolResult) -> tuple[ToolResult, tuple[Kept, ...]]:
    """The result as an event can carry it, and the artifacts to be stored before. A continuation stays as it is."""
    if result.result is None or len(result.result.model_dump_json(exclude_none=True).encode()) <= MAX_INLINE_BYTES:
        return result, ()
    fields = _fields(result)
    whole = {"continuation": fields.pop("continuation")} if "continuation" in fields else {}
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    longest = max(texts, key=lambda name: len(texts[name]), default="")
    rest = {name: value for name, value in fields.items() if name != longest}
    outcome = made_fit(ToolOutcome("ok", text=texts.get(longest, ""), output=rest))
    kept = tuple(Kept(_name(result, artifact), artifact) for artifact in outcome.artifacts)
    return result.model_copy(update={"result": output_of(outcome, kept).model_copy(update=whole)}), kept


def _fields(result: ToolResult) -> dict[str, JsonValue]:
    return result.result.model_dump(exclude_none=True) if result.result else {}


def _name(result: ToolResult, artifact: ProducedArtifact) -> str:
    told = artifact.sha256[:16]
    suffix = SUFFIXES[media_type(artifact)]
    return f"{result.tool[:LONGEST_TOOL]}-{result.step:02d}-relayed-{told}{suffix}"
