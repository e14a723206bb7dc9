"""The text-report plugin: it measures, and every judgement rests on a measurement."""

import re
import time
from typing import Any

import pytest

from tests.plugins.asking import SHIPPED, ask, refused

REPORT = SHIPPED / "text-report"

SHOP = """<!doctype html><html><head><title>Harbour Bikes: repairs while you wait</title>
<style>p { color: red }</style><script>var hidden = "not read";</script></head><body>
<nav><a href="/">Home</a> <a href="/prices">Prices</a></nav>
<h1>Repairs while you wait</h1>
<p>We are Harbour Bikes, and we are very proud of our workshop on the quay. We repair bikes of every kind, from folding
bikes to cargo bikes, and we do it while you drink a coffee next door, because we believe that nobody should have to
leave their bike behind for a week only to be told that a part has to be ordered.</p>
<h3>What it costs</h3>
<p>A puncture costs 12 euros. A full service costs 75 euros and takes about two hours.</p>
<img src="a.jpg"><img src="b.jpg" alt="The workshop"><img src="line.png" alt="">
<p>Come by from Monday to Friday. <a href="/map">Click here</a> for the map.</p>
<footer>All rights reserved.</footer></body></html>"""


def report(text: str, *, content_type: str = "text/plain", **arguments: Any) -> dict[str, Any]:
    artifact = {"path": "artifacts/fetch-01.txt", "content_type": content_type, "text": text}
    return ask(REPORT, {"artifact": artifact} | arguments)


def written(response: dict[str, Any]) -> str:
    assert response["status"] == "ok", response
    return str(response["artifacts"][0]["text"])


def test_a_page_is_measured_as_a_reader_would_count_and_its_faults_are_named_with_their_numbers() -> None:
    response = report(SHOP, content_type="text/html")
    facts = response["output"]["facts"]
    assert (facts["headings"], facts["links"], facts["vague_links"]) == (2, 3, ["Click here"])
    assert (facts["images"], facts["images_without_text"]) == (3, 1)
    assert (facts["sentences"], facts["longest_sentence"]) == (6, 49)
    assert [(one["name"], one["content_type"]) for one in response["artifacts"]] == [("critique.md", "text/markdown")]
    _, second = written(response).strip().split("\n\n")
    assert "49 words (“We repair bikes of every kind" in second
    assert "of 3 images, 1 without an alternative text" in second


def test_nothing_quoted_from_the_text_becomes_markup_of_the_critique() -> None:
    hostile = (
        "![x](https://evil.example/?d=1) <script>alert(1)</script> **bold** [a](javascript:x) `code` " + "word " * 40
    )
    text = written(report(f"{hostile}.", title="<b>[t](u)</b>\x1b[31m"))
    assert not re.search(r"[<>\[\]*`#|\\\x1b]", text)


NOTHING: list[Any] = [
    *(None, "", "  \n ", {"path": "artifacts/a.png", "content_type": "image/png"}),
    {"path": "artifacts/a.html", "content_type": "text/html", "text": "<html><head><title>T</title></head><body>"},
    {"path": "artifacts/a.html", "content_type": "text/html", "text": "<script>only('this')</script>"},
    {"path": "artifacts/a.txt", "content_type": "text/plain", "text": "… — !"},
]


def test_where_there_is_nothing_to_read_the_report_says_so_instead_of_inventing() -> None:
    for artifact in NOTHING:
        assert "artifact" in refused(ask(REPORT, {"artifact": artifact}))


@pytest.mark.parametrize(
    "page",
    ["<a" * 200_000, "<!--" * 100_000, "<a href='" * 40_000, "a" + "#" * 400_000 + "b", "![a](" * 80_000],
)
def test_a_hostile_page_takes_no_longer_than_an_honest_one_of_its_size(page: str) -> None:
    began = time.monotonic()
    report(f"<p>Two words.</p>{page}", content_type="text/html")
    report(f"Two words.\n\n{page}")
    assert time.monotonic() - began < 5


ODD = {
    "<p>one <!-- a <p>comment</p> with tags --> two</p>": 2,
    "<p>one two <!-- a comment that does not end <p>three</p>": 2,
    "<p title='a > b'>one two</p>": 2,
    "<p>1 < 2 and 3 > 2</p>": 5,
}


def test_comments_and_odd_tags_are_read_as_browsers_read_them() -> None:
    assert {page: report(page, content_type="text/html")["output"]["facts"]["words"] for page in ODD} == ODD
