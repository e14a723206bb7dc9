"""What a plugin answers in the markdown form: `## Plugin Result`, its status, and what it asks for, if anything."""

from dataclasses import dataclass
from typing import Literal, cast

from schemas.continuation import Continuation, of_form
from schemas.markdown_form import form_in

Status = Literal["success", "error", "continuation"]


@dataclass(frozen=True, slots=True)
class PluginResult:
    """`plugin`: its name, as it says. `text`: the answer of a success, the reason of an error; empty beside a
    continuation."""

    status: Status
    plugin: str
    confidence: str | None
    continuation: Continuation | None
    text: str


def read_plugin_result(text: str) -> PluginResult:
    """Reads a text that `schemas.markdown_form.is_form`. Raises ValueError: `line 7: …`, for each flaw."""
    form = form_in(text)
    status = cast("Status", form.status)  # form_in takes no other
    continuation = of_form(form) if status == "continuation" else None
    return PluginResult(status, form.plugin, form.confidence, continuation, form.text)
