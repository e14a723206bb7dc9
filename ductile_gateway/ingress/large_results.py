"""Results from outside that are too large for an event: they become artifacts, as those of our own tools do. Pure.

An artifact's name holds a hash of its content: the same delivery again means the same artifact, and another delivery
for the same step can never replace one that the journal knows.
"""

from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue

from ductile_gateway.calls.artifacts import SUFFIXES, media_type, text_of
from ductile_gateway.calls.call import ProducedArtifact, ToolOutcome
from ductile_gateway.calls.results import MAX_OUTPUT_BYTES, Kept, made_fit, output_of
from schemas.events import ToolResult

MAX_INLINE_BYTES = 16 * 1024
"""A result is kept in the journal and shown to the model in every later prompt."""
LONGEST_TOOL = 48


def made_small(result: ToolResult) -> tuple[ToolResult, tuple[Kept, ...]]:
    """The result as an event can carry it, and the artifacts to be stored before; none where it is small. What the tool
    needs first stays as it is."""
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
