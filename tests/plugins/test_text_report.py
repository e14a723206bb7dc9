"""The text-report plugin: it measures, and every judgement rests on a measurement."""

import re
import time
from typing import Any

import pytest

from tests.plugins.asking import SHIPPED, ask

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

DIARY = """# On keeping a garden diary

I began a garden diary in March 2019, with a pencil and a school book. The first page holds the date and eleven words.

## What it is good for

A diary tells you what your memory will not. You sowed peas on the third of April, and they came up on the nineteenth.
Write it down, and you will know. Your garden has its own calendar, and no [book](https://example.com) can tell you.
"""

STATUTE = """Notwithstanding any provision to the contrary contained herein, the aforementioned obligations of the
contracting organisation shall be interpreted in accordance with the applicable regulatory framework governing
intergovernmental procurement, including without limitation any supplementary administrative instructions promulgated
subsequently thereto. The organisation acknowledges that implementation of the aforementioned obligations necessitates
comprehensive organisational restructuring. The organisation undertakes to facilitate the aforementioned restructuring
through appropriate consultative mechanisms."""

GERMAN = """Die Werkstatt am Hafen repariert Fahrräder aller Art. Eine Reifenpanne kostet zwölf Euro und dauert zwanzig
Minuten. Wer warten möchte, trinkt nebenan einen Kaffee. Am Samstag bleibt die Werkstatt geschlossen."""


def report(text: str, *, content_type: str = "text/plain", **arguments: Any) -> dict[str, Any]:
    artifact = {"path": "artifacts/fetch-01.txt", "content_type": content_type, "text": text}
    return ask(REPORT, {"artifact": artifact} | arguments)


def written(response: dict[str, Any]) -> str:
    assert response["status"] == "ok", response
    text = response["artifacts"][0]["text"]
    assert isinstance(text, str)
    return text


def test_the_critique_is_one_markdown_artifact_of_two_paragraphs() -> None:
    response = report(SHOP, content_type="text/html")
    assert [(one["name"], one["content_type"]) for one in response["artifacts"]] == [("critique.md", "text/markdown")]
    assert len(written(response).strip().split("\n\n")) == 2
    assert response["output"]["paragraphs"] == 2
    assert "critique.md" in response["result"]


def test_the_measurements_of_a_page_are_those_a_reader_would_count() -> None:
    facts = report(SHOP, content_type="text/html")["output"]["facts"]
    assert (facts["headings"], facts["links"], facts["vague_links"]) == (2, 3, ["Click here"])
    assert (facts["images"], facts["images_without_text"]) == (3, 1)
    assert (facts["sentences"], facts["longest_sentence"]) == (6, 49)


def test_scripts_styles_navigation_and_footers_are_not_read() -> None:
    hidden = "<nav>Home</nav><script>let a</script><style>b{}</style><p>Three words remain.</p><footer>Imprint</footer>"
    assert report(hidden, content_type="text/html")["output"]["facts"]["words"] == 3


@pytest.mark.parametrize("broken", [f"&#{'1' * 5000};", "<![x[ ]]>"])
def test_a_page_is_read_also_where_it_is_broken(broken: str) -> None:
    page = f"<p>Two words {broken}</p><p>remain and more.</p>"
    assert report(page, content_type="text/html")["output"]["facts"]["words"] == 5


def test_markdown_is_measured_without_its_marks() -> None:
    facts = report(DIARY)["output"]["facts"]
    assert (facts["headings"], facts["links"], facts["sentences"]) == (2, 1, 6)


def test_the_faults_of_a_page_are_named_with_their_numbers() -> None:
    _, second = written(report(SHOP, content_type="text/html")).strip().split("\n\n")
    assert "49 words (“We repair bikes of every kind" in second
    assert "of 3 images, 1 without an alternative text" in second


def test_different_texts_get_different_judgements() -> None:
    shop = written(report(SHOP, content_type="text/html"))
    diary, statute = written(report(DIARY)), written(report(STATUTE))
    assert "alternative text" in shop
    assert "alternative text" not in diary + statute
    assert "a length that is easy to follow" in diary
    assert "a length that is easy to follow" not in statute
    assert "readability: the Flesch reading ease is -" in statute


@pytest.mark.parametrize("tone", ["constructive", "warm", "direct", "formal"])
@pytest.mark.parametrize("text", [SHOP, DIARY, STATUTE, GERMAN, "Hello world."])
def test_every_finding_has_a_number_in_it_whatever_the_tone(text: str, tone: str) -> None:
    first, second = written(report(text, tone=tone)).strip().split("\n\n")
    assert re.search(r"a (very short|short) (page|text) of \d+ words, about \d+ seconds of reading", first)
    findings = re.findall(r": ([^.]*(?:\.\d[^.]*)*)\.", second) or [second]
    assert all(re.search(r"\d", finding) for finding in findings), findings


def test_tones_differ_in_words_and_agree_on_the_findings() -> None:
    tones = ("constructive", "a warm, friendly one", "be blunt", "formal", "like a pirate")
    responses = [report(SHOP, content_type="text/html", tone=tone) for tone in tones]
    assert [one["output"]["tone"] for one in responses] == ["constructive", "warm", "direct", "formal", "constructive"]
    assert len({written(one) for one in responses}) == 4
    assert all("of 3 images, 1 without an alternative text" in written(one) for one in responses)


def test_a_text_that_is_not_english_is_not_judged_by_english_measures() -> None:
    assert report(GERMAN)["output"]["facts"]["readability"] is None


def test_a_text_without_faults_is_told_so() -> None:
    long = " ".join(f"The {n} lamps of the house are on, and you can see them from the road." for n in range(8))
    second = written(report(f"{long} [The road](https://example.com) is long.")).strip().split("\n\n")[1]
    assert "no repair" in second
    assert "longest sentence, 16 words" in second


@pytest.mark.parametrize(
    ("title", "called"), [("My page", "“My page”"), (None, "“Harbour Bikes: repairs while you wait”")]
)
def test_the_text_is_called_by_the_given_title_or_by_its_own(title: str | None, called: str) -> None:
    arguments = {"title": title} if title else {}
    assert called in written(report(SHOP, content_type="text/html", **arguments))


def test_nothing_quoted_from_the_text_becomes_markup_of_the_critique() -> None:
    hostile = (
        "![x](https://evil.example/?d=1) <script>alert(1)</script> **bold** [a](javascript:x) `code` " + "word " * 40
    )
    text = written(report(f"{hostile}.", title="<b>[t](u)</b>\x1b[31m"))
    assert not re.search(r"[<>\[\]*`#|\\\x1b]", text)


def test_plain_text_in_place_of_an_artifact_is_read_as_it_is() -> None:
    response = ask(REPORT, {"artifact": DIARY})
    assert response["output"]["facts"]["headings"] == 2


@pytest.mark.parametrize(
    "artifact",
    [
        None,
        "",
        "  \n ",
        {"path": "artifacts/a.png", "content_type": "image/png"},
        {"path": "artifacts/a.html", "content_type": "text/html", "text": "<html><head><title>T</title></head><body>"},
        {"path": "artifacts/a.html", "content_type": "text/html", "text": "<script>only('this')</script>"},
        {"path": "artifacts/a.txt", "content_type": "text/plain", "text": "… — !"},
    ],
)
def test_where_there_is_nothing_to_read_the_report_says_so_instead_of_inventing(artifact: Any) -> None:
    response = ask(REPORT, {"artifact": artifact})
    assert (response["status"], response["error_class"], response["retry"]) == ("error", "invalid_arguments", False)
    assert "artifact" in response["error"]


def test_broken_html_is_read_as_far_as_it_goes() -> None:
    response = report(
        "<p>One <b>two</p></div><h2>Three<p>Four five six seven.<a href=x>eight", content_type="text/html"
    )
    assert response["output"]["facts"]["words"] == 8


def test_a_large_page_is_measured_in_seconds() -> None:
    response = report("<p>A sentence of some eight words it is. </p>" * 40000, content_type="text/html")
    assert response["output"]["facts"]["sentences"] == 40000


@pytest.mark.parametrize(
    "page",
    ["<a" * 200_000, "<!--" * 100_000, "<a href='" * 40_000, "a" + "#" * 400_000 + "b", "![a](" * 80_000],
)
def test_a_hostile_page_takes_no_longer_than_an_honest_one_of_its_size(page: str) -> None:
    began = time.monotonic()
    report(f"<p>Two words.</p>{page}", content_type="text/html")
    report(f"Two words.\n\n{page}")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<p>one <!-- a <p>comment</p> with tags --> two</p>", 2),
        ("<p>one two <!-- a comment that does not end <p>three</p>", 2),
        ("<p title='a > b'>one two</p>", 2),
        ("<p>1 < 2 and 3 > 2</p>", 5),
    ],
)
def test_comments_and_odd_tags_are_read_as_browsers_read_them(page: str, words: int) -> None:
    assert report(page, content_type="text/html")["output"]["facts"]["words"] == words
