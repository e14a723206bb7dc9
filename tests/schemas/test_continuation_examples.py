"""Example files of both forms: what is read from the good ones, and what is said of each malformed one.

`continuations/valid` has each example in markdown and in JSON; `continuations/malformed` has one mistake per file (or
several, where its name says so), and in `flaws.yaml` what its author is told.
"""

import json
from pathlib import Path

import pytest
import yaml

from schemas.continuation import Continuation, of_object, read_plugin_result
from tests.kit.pages import ROOT, blocks
from tests.schemas import samples

FOLDER = Path(__file__).with_name("continuations")
VALID = sorted((FOLDER / "valid").glob("*.md"))
MALFORMED = sorted(path for path in (FOLDER / "malformed").iterdir() if path.suffix in (".md", ".json"))
FLAWS: dict[str, str] = yaml.safe_load((FOLDER / "malformed" / "flaws.yaml").read_text())


def read(path: Path) -> Continuation | None:
    text = path.read_bytes().decode()
    return of_object(json.loads(text)) if path.suffix == ".json" else read_plugin_result(text).continuation


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_both_forms_of_an_example_ask_for_the_same(path: Path) -> None:
    asked = read(path)
    assert asked is not None
    assert asked == read(path.with_suffix(".json"))


def test_every_malformed_example_is_listed_with_what_is_said_of_it() -> None:
    assert list(FLAWS) == [path.name for path in MALFORMED]


@pytest.mark.parametrize("path", MALFORMED, ids=lambda path: path.name)
def test_of_a_malformed_example_the_field_or_the_line_is_named(path: Path) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the whole text is compared
        read(path)
    assert str(refusal.value) == FLAWS[path.name]


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_an_example_is_valid_by_the_published_schema(path: Path) -> None:
    result = {"continuation": json.loads(path.with_suffix(".json").read_bytes())}
    message = samples.changed("agentic.tool_result", status="continuation", result=result)
    samples.published("agentic.tool_result").validate(json.loads(message))


def test_the_two_forms_on_the_page_ask_for_the_same() -> None:
    text = {block.language: block.text for block in blocks(ROOT / "docs" / "CONTINUATIONS.md") if not block.is_file}
    assert read_plugin_result(text["markdown"]).continuation == of_object(json.loads(text["json"]))
