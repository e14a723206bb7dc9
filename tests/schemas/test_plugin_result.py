"""The markdown form of a plugin's answer, besides what it asks for."""

import pytest

from schemas.continuation import PluginResult, read_plugin_result
from schemas.markdown_form import is_form

HEAD = "## Plugin Result\nStatus: {}\nPlugin: z3-solver\n"


@pytest.mark.parametrize("status", ["success", "error"])
def test_what_follows_the_fields_is_the_text_whatever_it_looks_like(status: str) -> None:
    text = "x = 4\n\n## Continuation Request\nAction: retrieve\nQuery: of somebody who is quoted"
    found = read_plugin_result(f"{HEAD.format(status)}Confidence: high\n\n{text}\n")
    assert found == PluginResult(status, "z3-solver", "high", None, text)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [HEAD, "\n \n" + HEAD, HEAD.replace("\n", "\r\n"), "## Plugin Result", HEAD + "\0"])
def test_a_text_is_of_this_form_by_its_first_line(text: str) -> None:
    assert is_form(text)


def test_a_very_long_text_is_told_apart_at_once() -> None:
    assert not is_form("\n \t" * 300_000 + "x")
