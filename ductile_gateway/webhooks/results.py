"""Results from outside that need something first, or are too large for an event. Pure.

A continuation beside `ok` counts only for a tool of ours that may continue, and not where strangers may have written
it. An artifact's name holds a hash of its content: another delivery for the same step never replaces it.
"""

from collections.abc import Callable, Mapping

from pydantic import JsonValue
from pydantic_core import to_json

from ductile_gateway.calls.artifacts import SUFFIXES, media_type, text_of
from ductile_gateway.calls.call import ProducedArtifact, ToolOutcome
from ductile_gateway.calls.continuing import MAX_BYTES, asks_for, in_words, reads_form, unreadable
from ductile_gateway.calls.results import MAX_OUTPUT_BYTES, Kept, made_fit, output_of
from schemas.catalog import ToolOffer
from schemas.continuation import Continuation, ContinuationInvalid, of_object, read
from schemas.events import ToolError, ToolOutput, ToolResult
from schemas.values import replace

_TEXTS = ("summary", "result")
"""Where a plugin's text is: by itself, and as Ductile fills it in behind a pipeline's step."""

FindOffer = Callable[[str], ToolOffer | None]


def as_said(result: ToolResult, find_offer: FindOffer) -> ToolResult:
    """The result with its continuation in the JSON form; an error where that cannot be read."""
    if result.status == "error":
        return result
    if result.status == "ok" and (result.untrusted or not reads_form(find_offer(result.tool))):
        return result
    try:
        continuation = _continuation(result)
    except ContinuationInvalid as flaws:
        return _failed(result, unreadable(ToolOutcome("continuation"), str(flaws)))
    return _continued(result, continuation) if continuation else _in_words(result)


def _continuation(result: ToolResult) -> Continuation | None:
    if result.status == "continuation":
        return read(result.result)
    told = _fields(result).get("continuation")
    return None if told is None else of_object(told)


def _in_words(result: ToolResult) -> ToolResult:
    fields = _fields(result)
    text = next((value for name in _TEXTS if isinstance(value := fields.get(name), str)), "")
    output = fields.get("output")
    plain = ToolOutcome("ok", text=text, output=output if isinstance(output, dict) else {})
    said = in_words(plain, plugin=result.tool, reads=True)
    if not isinstance(said, ToolOutcome) or said == plain:
        return result
    if said.status == "error":
        return _failed(result, said)
    if said.continuation:
        return _continued(result, said.continuation)
    return _with_output(result, fields | {"summary": said.text, "output": dict(said.output)})


def _continued(result: ToolResult, continuation: Continuation) -> ToolResult:
    form = asks_for(continuation)
    if len(to_json(form)) > MAX_BYTES:
        return _failed(result, unreadable(ToolOutcome("continuation"), f"it has more than {MAX_BYTES} bytes"))
    rest = {name: value for name, value in _fields(result).items() if name not in _TEXTS}
    asked = result.model_copy(update={"status": "continuation"})
    return _with_output(asked, rest | {"summary": continuation.reason or "", "continuation": form})


def _with_output(result: ToolResult, fields: dict[str, JsonValue]) -> ToolResult:
    return result.model_copy(update={"result": ToolOutput.model_validate(fields)})


def _failed(result: ToolResult, outcome: ToolOutcome) -> ToolResult:
    error = ToolError(error_class=outcome.error_class or "tool_error", message=outcome.message or "")
    return result.model_copy(update={"status": "error", "result": None, "error": error})


def _fields(result: ToolResult) -> dict[str, JsonValue]:
    return result.result.model_dump(exclude_none=True) if result.result else {}


MAX_INLINE_BYTES = 16 * 1024
"""A result is kept in the journal and shown to the model in every later prompt."""
LONGEST_TOOL = 48


def made_small(result: ToolResult) -> tuple[ToolResult, tuple[Kept, ...]]:
    """The result as an event can carry it, and the artifacts to be stored before. A continuation stays as it is."""
    output = result.result
    if output is None or len(output.model_dump_json(exclude_none=True).encode()) <= MAX_INLINE_BYTES:
        return result, ()
    fields = output.model_dump(exclude_none=True)
    whole = {"continuation": fields.pop("continuation")} if "continuation" in fields else {}
    outcome = made_fit(_outcome(fields))
    kept = tuple(Kept(_name(result, artifact), artifact) for artifact in outcome.artifacts)
    return result.model_copy(update={"result": output_of(outcome, kept).model_copy(update=whole)}), kept


def _outcome(fields: Mapping[str, JsonValue]) -> ToolOutcome:
    rest = dict(fields)
    summary = rest.pop("summary") if isinstance(rest.get("summary"), str) else ""
    texts = {name: value for name, value in rest.items() if isinstance(value, str)}
    longest = max(texts, key=lambda name: len(texts[name]), default="")
    if len(texts.get(longest, "").encode()) <= MAX_OUTPUT_BYTES:
        return ToolOutcome("ok", text=str(summary), output=rest)
    del rest[longest]
    content = _content(texts[longest], str(rest.get("content_type")))
    return ToolOutcome("ok", text=str(summary), output=rest, artifacts=(content,))


def _content(text: str, declared: str) -> ProducedArtifact:
    artifact = ProducedArtifact("content", declared, text.encode())
    known = media_type(artifact) in SUFFIXES and text_of(artifact) is not None
    return replace(artifact, content_type=media_type(artifact) if known else "text/plain")


def _name(result: ToolResult, artifact: ProducedArtifact) -> str:
    told = artifact.sha256[:16]
    suffix = SUFFIXES[media_type(artifact)]
    return f"{result.tool[:LONGEST_TOOL]}-{result.step:02d}-relayed-{told}{suffix}"
