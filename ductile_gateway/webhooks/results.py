"""Results from outside that need something first, or are too large for an event. Pure.

A continuation beside `ok` counts only for a tool of ours that may continue, and not where strangers may have written
it. An artifact's name holds a hash of its content: another delivery for the same step never replaces it.
"""

from collections.abc import Callable

from pydantic import JsonValue
from pydantic_core import to_json

from ductile_gateway.calls.artifacts import SUFFIXES, media_type
from ductile_gateway.calls.call import ProducedArtifact, ToolOutcome
from ductile_gateway.calls.continuing import MAX_BYTES, asks_for, in_words, reads_form, unreadable
from ductile_gateway.calls.results import MAX_OUTPUT_BYTES, Kept, made_fit, output_of
from schemas.catalog import ToolOffer
from schemas.continuation import ContinuationInvalid, of_object
from schemas.events import ToolError, ToolOutput, ToolResult
from schemas.values import replace

_TEXTS = ("summary", "result")
"""Where a plugin's text is: by itself, and as Ductile fills it in behind a pipeline's step."""
MAX_INLINE_BYTES = 16 * 1024
"""A result is kept in the journal and shown to the model in every later prompt."""
LONGEST_TOOL = 48

FindOffer = Callable[[str], ToolOffer | None]


def as_said(result: ToolResult, find_offer: FindOffer) -> ToolResult:
    """The result with its continuation in the JSON form; an error where that cannot be read."""
    ours = result.status == "ok" and not result.untrusted and reads_form(find_offer(result.tool))
    if not ours and result.status != "continuation":
        return result
    fields = _fields(result)
    output = fields.get("output")
    text = next((value for name in _TEXTS if isinstance(value := fields.get(name), str)), "")
    plain = ToolOutcome(result.status, text=text, output=output if isinstance(output, dict) else {})
    said = _said(plain, result.tool, fields.get("continuation"))
    if said == plain:
        return result
    if said.status == "error":
        error = ToolError(error_class=said.error_class or "tool_error", message=said.message or "")
        return result.model_copy(update={"status": "error", "result": None, "error": error})
    if said.continuation:
        rest = {name: value for name, value in fields.items() if name not in _TEXTS}
        told = rest | {"summary": said.continuation.reason or "", "continuation": asks_for(said.continuation)}
    else:
        told = fields | {"summary": said.text, "output": dict(said.output)}
    return result.model_copy(update={"status": said.status, "result": ToolOutput.model_validate(told)})


def _said(plain: ToolOutcome, tool: str, told: JsonValue) -> ToolOutcome:
    said = plain
    try:
        said = replace(plain, status="continuation", continuation=of_object(told)) if told is not None else said
    except ContinuationInvalid as flaws:
        return unreadable(plain, str(flaws))
    read = in_words(said, plugin=tool, reads=True)
    said = read if isinstance(read, ToolOutcome) else said
    if said.continuation and len(to_json(asks_for(said.continuation))) > MAX_BYTES:
        return unreadable(plain, f"it has more than {MAX_BYTES} bytes")
    return said


def made_small(result: ToolResult) -> tuple[ToolResult, tuple[Kept, ...]]:
    """The result as an event can carry it, and the artifacts to be stored before. A continuation stays as it is."""
    if result.result is None or len(result.result.model_dump_json(exclude_none=True).encode()) <= MAX_INLINE_BYTES:
        return result, ()
    fields = _fields(result)
    whole = {"continuation": fields.pop("continuation")} if "continuation" in fields else {}
    summary = str(fields.pop("summary")) if isinstance(fields.get("summary"), str) else ""
    outcome = made_fit(ToolOutcome("ok", text=summary, artifacts=_long_text(fields), output=fields))
    kept = tuple(Kept(_name(result, artifact), artifact) for artifact in outcome.artifacts)
    return result.model_copy(update={"result": output_of(outcome, kept).model_copy(update=whole)}), kept


def _long_text(fields: dict[str, JsonValue]) -> tuple[ProducedArtifact, ...]:
    """The longest text as an artifact, taken out of the fields, where it is too long to stay among them."""
    texts = {name: value.encode() for name, value in fields.items() if isinstance(value, str)}
    longest = max(texts, key=lambda name: len(texts[name]), default="")
    if len(texts.get(longest, b"")) <= MAX_OUTPUT_BYTES:
        return ()
    del fields[longest]
    declared = ProducedArtifact("content", str(fields.get("content_type")), texts[longest])
    is_known = media_type(declared).startswith("text/") and media_type(declared) in SUFFIXES
    return (replace(declared, content_type=media_type(declared) if is_known else "text/plain"),)


def _fields(result: ToolResult) -> dict[str, JsonValue]:
    return result.result.model_dump(exclude_none=True) if result.result else {}


def _name(result: ToolResult, artifact: ProducedArtifact) -> str:
    told = artifact.sha256[:16]
    suffix = SUFFIXES[media_type(artifact)]
    return f"{result.tool[:LONGEST_TOOL]}-{result.step:02d}-relayed-{told}{suffix}"
