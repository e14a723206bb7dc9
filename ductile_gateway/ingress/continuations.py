"""Results from outside that say what their tool needs first, or how it ended, in one of the forms of a plugin. Pure.

A status `continuation` is the sender's own word. Beside ok, which is all that a Ductile knows, either form is read as
one where it is a tool's of ours that may continue, and no stranger may have written it: a pipeline hands on pages, too.
Its plugin is the tool that was asked.
"""

from collections.abc import Callable

from pydantic import JsonValue
from pydantic_core import to_json

from ductile_gateway.calls.call import ToolOutcome
from ductile_gateway.calls.continuing import MAX_BYTES, asks_for, in_words, reads_form, unreadable
from schemas.catalog import ToolOffer
from schemas.continuation import Continuation, ContinuationInvalid, of_object, read
from schemas.events import ToolError, ToolOutput, ToolResult

_TEXTS = ("summary", "result")
"""Where a plugin's text is: by itself, and as Ductile fills it in behind a pipeline's step."""

FindOffer = Callable[[str], ToolOffer | None]
"""A tool on offer, by its name."""


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
