"""Sentences of the core, and their words."""

import ast
from collections.abc import Iterator
from pathlib import Path

from agent_service import core
from agent_service.sentences import FORMS, Sentence, say

SOURCES = [ast.parse(file.read_text(encoding="utf-8")) for file in Path(core.__file__).parent.rglob("*.py")]
OF_A_PROOF = "shown_by_"
"""Prefixes of sentence names that end with a kind of proof."""


def texts(root: ast.AST) -> Iterator[str]:
    for node in ast.walk(root):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_a_sentence_of_another_version_is_told_by_its_name_and_values() -> None:
    assert (
        str(Sentence("unknown", {"step": 1, "why": say("said_newer")}))
        == f"unknown: {{'step': 1, 'why': '{say('said_newer')}'}}"
    )


def test_what_the_core_says_has_words_and_no_words_are_there_for_nothing() -> None:
    calls = [node for source in SOURCES for node in ast.walk(source) if isinstance(node, ast.Call)]
    said = {
        text
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "say"
        for text in texts(call.args[0])
    }
    assert said - {*FORMS, OF_A_PROOF} == set()
    named = {text for source in SOURCES for text in texts(source)}
    assert {name for name in FORMS if name not in named and not name.startswith(OF_A_PROOF)} == set()


def test_what_was_said_literally_is_never_read_as_a_form() -> None:
    refused = say("not_approved", what=say("new_framing"), verdict="rejected", why="{no} {0}")
    assert "{no} {0}" in str(say("refused_in_a_row", times=5, why=refused))
