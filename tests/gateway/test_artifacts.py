"""What artifacts are called, which arguments hold one, and what of their content is text."""

import pytest

from ductile_gateway.calls.artifacts import artifact_arguments, candidates, text_of
from ductile_gateway.calls.call import ProducedArtifact
from schemas.catalog import ToolCommand
from tests.gateway.parts import a_request, asked_for


def names(name: str, content_type: str = "text/plain", *, step: int = 1, attempt: int = 1, place: int = 0) -> list[str]:
    asked = asked_for(a_request(step=step, attempt=attempt))
    return list(candidates(ProducedArtifact(name, content_type, b""), asked, place=place))


@pytest.mark.parametrize(
    ("name", "content_type", "becomes"),
    [
        ("page.html", "text/html", "fetch-01.html"),
        ("output.json", "application/json", "fetch-01.json"),
        ("fetch.md", "text/markdown", "fetch-01.md"),
        ("jina-reader.txt", "text/plain", "fetch-01.txt"),
        ("page", "text/html; charset=utf-8", "fetch-01.html"),
        ("page", "application/x-unheard-of", "fetch-01"),
        ("__", "text/html", "fetch-01.html"),
        ("critique.md", "text/markdown", "critique.md"),
        ("critique", "text/markdown", "critique.md"),
        ("_notes.txt", "text/plain", "notes.txt"),
        ("v1.2-notes", "text/plain", "v1.2-notes"),
        ("x" * 100, "text/plain", "x" * 48 + ".txt"),
    ],
)
def test_a_name_that_says_nothing_becomes_tool_and_step_and_any_other_is_kept(
    name: str, content_type: str, becomes: str
) -> None:
    assert names(name, content_type)[0] == becomes


def test_a_name_that_is_taken_gets_the_step_or_the_attempt_and_at_last_one_that_nobody_has() -> None:
    assert names("critique.md", step=12, attempt=3)[:2] == ["critique.md", "critique-12.md"]
    assert names("page.html", step=12, attempt=3)[:2] == ["fetch-12.html", "fetch-12-3.html"]
    last = {names("page.html", step=s, attempt=a, place=p)[-1] for s in (1, 2) for a in (1, 2) for p in (0, 1)}
    assert len(last) == 8


def test_only_arguments_whose_schema_has_the_format_are_artifacts() -> None:
    schema = {
        "properties": {
            "document": {"type": "string", "format": "artifact"},
            "other": {"type": "string", "format": "artifact"},
            "address": {"type": "string", "format": "uri"},
            "anything": True,
        }
    }
    command = ToolCommand(name="read", tier="read", input_schema=schema)
    payload = {"document": "artifacts/a.md", "address": "artifacts/b.md", "anything": "artifacts/c.md"}
    assert artifact_arguments(command, payload) == {"document": "artifacts/a.md"}


@pytest.mark.parametrize(
    ("content_type", "content", "text"),
    [
        ("text/html", "é".encode(), "é"),
        ("text/plain; charset=latin-1", "é".encode("latin-1"), "é"),
        ("text/plain; charset=unheard-of", "é".encode(), "é"),
        ("text/plain; charset=punycode", b"a-b", "a-b"),
        ("text/plain; charset=UTF-7", b"+AGE-", "+AGE-"),
        ("application/ld+json", b"{}", "{}"),
        ("text/plain", b"\xff\0a", "\ufffd\ufffda"),
        ("image/png", b"abc", None),
        ("application/octet-stream", b"abc", None),
    ],
)
def test_text_is_read_as_what_it_says_it_is_and_nothing_else_is_text(
    content_type: str, content: bytes, text: str | None
) -> None:
    assert text_of(ProducedArtifact("a", content_type, content)) == text
