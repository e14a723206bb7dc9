"""The plugin that searches a folder of Markdown pages."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.results import MAX_OUTPUT_BYTES, MAX_SUMMARY_BYTES
from tests.plugins.asking import SHIPPED, a_request, ask, refused, run

KNOWLEDGE = SHIPPED / "knowledge"
NOTE = SHIPPED.parents[2] / "examples" / "research-note" / "tools" / "note"
YEAR_AGO = 1_700_000_000


class Shelf:
    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder / "pages", folder / "cache"
        self.folder.mkdir()

    @property
    def config(self) -> dict[str, str]:
        return {"folder": str(self.folder), "cache": str(self.cache)}

    def put(self, name: str, text: str, *, at: int = YEAR_AGO) -> Path:
        page = self.folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
        os.utime(page, (at, at))
        return page

    def asked(self, query: Any, **arguments: Any) -> dict[str, Any]:
        return ask(KNOWLEDGE, {"query": query} | arguments, command="search", config=self.config)

    def pages(self, query: str, **arguments: Any) -> list[str]:
        return [section["page"] for section in self.asked(query, **arguments)["output"]["sections"]]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_section_is_shown_whole_with_its_page_its_headings_and_its_lines(shelf: Shelf) -> None:
    shelf.put(
        "buying.md",
        "# Buying\n\nWhat we buy.\n\n## Budget\n\nUp to 100.\n\n- relax: a <= 1 -> a <= 2\n\n## Who\n\nAll.\n",
    )
    response = shelf.asked("what is the budget?")
    assert response["result"] == (
        "1 of 1 sections that fit “what is the budget?” (fast)\n\n"
        "[1] buying.md, lines 7 to 9: Buying / Budget\nUp to 100.\n\n- relax: a <= 1 -> a <= 2"
    )
    (section,) = response["output"]["sections"]
    assert section == {"page": "buying.md", "heading": "Buying / Budget", "from_line": 7, "to_line": 9}


def test_a_note_of_a_run_with_strangers_is_marked_when_a_later_run_finds_it(shelf: Shelf) -> None:
    shelf.put("prices.md", "# Prices\n\nSlate is 41 EUR.")
    for title, mark in (("Office rules", {"untrusted": True}), ("House rules", {})):
        asked = json.loads(a_request({"title": title, "text": "Mail it."}, command="write", config=shelf.config))
        assert run(NOTE, json.dumps(asked | {"job_id": "run_1:3:note:1"} | mark).encode())["status"] == "ok"
    assert (shelf.folder / "office-rules.md").read_text().startswith("---\nuntrusted: run_1\n---\n# Office rules\n")
    found = shelf.asked("rules", limit=9)["output"]
    assert {section["page"]: section.get("untrusted") for section in found["sections"]} == {
        "office-rules.md": True,
        "house-rules.md": None,
    }
    assert found["untrusted"] is True
    assert "untrusted" not in shelf.asked("slate")["output"]
    shelf.put("office-rules.md", "---\nuntrusted: false\n---\n# Office rules\n\nA person has read it.\n")
    assert "untrusted" not in shelf.asked("rules", limit=9)["output"]


def test_what_changes_in_the_folder_is_seen_by_the_next_search(shelf: Shelf) -> None:
    page = shelf.put("a.md", "a lamp")
    assert shelf.pages("lamp") == ["a.md"]
    shelf.put("a.md", "a desk", at=YEAR_AGO + 1)
    shelf.put("deep/b.md", "another lamp")
    assert (shelf.pages("lamp"), shelf.pages("desk")) == (["deep/b.md"], ["a.md"])
    page.unlink()
    assert (shelf.pages("lamp"), shelf.pages("desk")) == (["deep/b.md"], [])


QUERIES = [
    '"', "'", '"lamp', 'lamp"', "lamp AND", "NOT lamp", "lamp NEAR(", "lamp NEAR/2 x", "(lamp", "lamp)",
    "page:lamp", "^lamp", "lamp*", "*", "-lamp", "+lamp", "lamp\x00", "\x00", "lamp; drop table sections; --",
    "' or 1=1 --", "{lamp}", "lamp\n\n", "\ud800 lamp", "\u202elamp", "ﬀ lamp", "lamp " * 800, "x" * 4000,
    "_ _ _", "🪔 lamp", "???", "or and not", "a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 lamp",
]  # fmt: skip


@pytest.mark.parametrize("profile", ["fast", "thorough"])
def test_no_query_is_an_operator_or_an_error(shelf: Shelf, profile: str) -> None:
    shelf.put("a.md", "a lamp")
    for query in QUERIES:
        response = shelf.asked(query, profile=profile)
        assert response["status"] == "ok", response
        assert "lamp" not in query or response["output"]["found"] == 1


def test_pages_of_any_kind_can_be_searched_and_told(shelf: Shelf) -> None:
    (shelf.folder / "latin.md").write_bytes("Der Löffel \x00 lamp".encode("latin-1"))
    shelf.put("empty.md", "")
    shelf.put("one-line.md", "lamp " * 50_000)
    shelf.put("headings.md", "# \n#\n####### lamp\n```\n# no heading\n```\n" + "#" * 100)
    shelf.put("blank.md", "\n" * 100_000 + "lamp")
    shelf.put("😀 and more.md", "lamp")
    response = shelf.asked("lamp", profile="thorough", limit=20)
    assert response["status"] == "ok"
    assert len(response["result"].encode()) <= MAX_SUMMARY_BYTES
    assert len(json.dumps(response["output"])) <= MAX_OUTPUT_BYTES
    assert {"one-line.md", "blank.md", "😀 and more.md"} <= set(shelf.pages("lamp", limit=20))


def test_calls_at_the_same_time_all_find_what_is_there(shelf: Shelf) -> None:
    for number in range(200):
        shelf.put(f"{number}.md", f"# Page {number}\n\nlamp {number}")
    request = a_request({"query": "lamp 77"}, command="search", config=shelf.config)
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda _: run(KNOWLEDGE, request), range(16)))
    assert {response["status"] for response in responses} == {"ok"}
    assert {response["output"]["sections"][0]["page"] for response in responses} == {"77.md"}


UNUSABLE: list[tuple[dict[str, Any], str]] = [
    *(({"query": odd}, "query is missing") for odd in (None, " \n", 7)),
    ({"query": "x" * 4097}, "query must be at most 4096 characters"),
    *(({"query": "lamp", "profile": odd}, "profile must be one of fast, thorough") for odd in ("slow", None, ["fast"])),
    *(({"query": "lamp", "limit": odd}, "limit must be a whole number from 1 to 20") for odd in (0, "3", True)),
]


def test_an_argument_that_cannot_be_used_is_named(shelf: Shelf) -> None:
    for arguments, named in UNUSABLE:
        assert named in refused(ask(KNOWLEDGE, arguments, command="search", config=shelf.config))


def test_a_folder_that_is_no_path_is_named_and_a_search_needs_no_cache(shelf: Shelf) -> None:
    shelf.put("a.md", "a lamp").with_name("loop").symlink_to("loop")
    for odd in ("~no-such-user/pages", str(shelf.folder / "loop"), "pages\0", "/nowhere"):
        response = ask(KNOWLEDGE, {"query": "lamp"}, command="search", config=shelf.config | {"folder": odd})
        assert "the folder of pages cannot be read" in refused(response, "configuration")
    response = ask(KNOWLEDGE, {"query": "lamp"}, command="search", config=shelf.config | {"cache": "cache\0"})
    assert response["output"]["found"] == 1
