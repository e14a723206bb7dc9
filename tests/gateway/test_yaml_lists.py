"""Items of lists in a YAML text: put in and taken out without touching anything else."""

import pytest

from ductile_gateway.installation.yaml_lists import Item, mapping_of, with_item, without_item
from groundwork.service.errors import Misconfigured

TEXTS = (
    "",
    "a: 1",
    "# only a comment\n",
    "include: [x, y] # why\nb: 2\n",
    "include: []\n",
    "include:\n- x\n# between\n- y\nb: 1\n",
    "include: # files\n  # first\n  - x   # ours\n\n  - y",
    "include:\nb: 1\n",
    "b: 1\r\ninclude:\r\n  - x\r\n",
    "include: [\n  x, # first\n  y\n]\n",
    "\ufeffinclude: [x]\n",
    "include:\n  - name: a\n    key: b\n\n  # next\n  - {name: c, key: d}\n",
)
ITEMS: tuple[Item, ...] = ("agentic/agentic.yaml", {"name": "relay", "key": "${SECRET}"})


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("item", ITEMS, ids=["text", "mapping"])
def test_what_is_put_in_first_is_taken_out_again_to_the_byte(text: str, item: Item) -> None:
    added = with_item(text, "include", item)
    assert mapping_of(added)["include"][0] == item
    assert without_item(added, "include", item) == text


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_taken_out_from_behind_what_somebody_has_put_in_since(text: str) -> None:
    theirs = with_item(with_item(text, "include", "ours"), "include", "theirs")
    assert mapping_of(without_item(theirs, "include", "ours")).get("include", [])[:1] == ["theirs"]


@pytest.mark.parametrize("text", ["include: x\n", "include: {a: b}\n", "a: &x [1]\ninclude: *x\n", "- a\n", "a: [\n"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured):
        with_item(text, "include", "x")


def test_what_lies_behind_the_end_of_a_document_is_said_to_be_no_place_for_it() -> None:
    with pytest.raises(Misconfigured, match="put agentic in it yourself"):
        with_item("a: 1\n...\n", "include", "agentic")
