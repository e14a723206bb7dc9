"""Quotes are found in texts, and checked in the whole result and its artifacts, and nowhere else."""

from time import process_time
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from agent_service.bus.buckets import ProvenArtifacts
from agent_service.core.events import QuoteCheck
from agent_service.core.phases import ItemClaim, Reflection, Verdict
from agent_service.errors import ArtifactReplaced
from agent_service.run.citations import LONGEST, PIECE, CitationChecker, pieces, stands_in
from agent_service.run.ports import ArtifactReader
from groundwork.service.errors import TryAgain
from tests.core.cues import RUN_ID, frames, plans, replies, returns, signal
from tests.core.script import Script
from tests.core.words import run_at
from tests.kit.fakes import MemoryArtifacts
from tests.projections.journals import CRITIQUE, PAGE, worked_example
from tests.shell.stored import stored

ARTIFACT = "artifacts/report.md"
CUT = {"summary": "200 OK", "excerpt": "the first words", "artifact_path": ARTIFACT, "rows": [{"price": 12}]}
FETCHED: dict[str, Any] = {
    "summary": "Fetched https://e.org/?q=DONE (text/html, 43 bytes)",
    "url": "https://e.org/?q=DONE",
    "final_url": "https://e.org/?q=DONE",
    "status": 200,
    "tags": ["peas", "leeks"],
    "said": 'one "word"\nmore',
    "rows": [{"price": 12, "sold": True}],
    "job_id": "j-17",
    "attempts": 2,
    "last_error": "it was away",
}
ASKED_FOR = "it is of the address that was asked for: quote what was brought"
GOES_ON = Reflection(verdict=Verdict.CONTINUE, summary="go on")


def a_run(output: dict[str, Any] | None = None, *, kind: Any = "value") -> Script:
    run = run_at("run framing") >> frames(proofs=[f"{kind} fetch"] * 3) >> plans()
    run >> returns(output=output or CUT) >> replies(GOES_ON) >> plans(url="next")
    return run >> returns(output={"summary": "the newest"}) >> signal("message", message="You may send it.")


def bucket(content: bytes = b"the first words, and the very last ones") -> MemoryArtifacts:
    stores = MemoryArtifacts()
    stores.contents[RUN_ID, ARTIFACT] = content
    return stores


def failing(error: Exception) -> Any:
    return SimpleNamespace(get=AsyncMock(side_effect=error))


async def look(run: Script, *claims: tuple[str, str], artifacts: ArtifactReader | None = None) -> list[QuoteCheck]:
    """Checks of quotes, each with the place that it is claimed to be in."""
    met = tuple(ItemClaim(item="d1", evidence=evidence, quote=quote) for evidence, quote in claims)
    async with stored(run) as store:
        return list(await CitationChecker(store, artifacts or bucket()).check(run.state, met))


@pytest.mark.parametrize(
    ("output", "found", "not_found", "why"),
    [
        (CUT, ["200 OK", "the first words", '"price": 12', "and the very last ones"], [], ""),
        (FETCHED, ["12", "200", "true", "leeks", '"price": 12', "“status”: 200", '"rows": [{"price": 12'], [], ""),
        (FETCHED, ['"peas", "leeks"', 'one "word"', '\\"word\\"\\nmore', "43 bytes"], [], ""),
        (FETCHED, ["Fetched https://e.org/?q=DONE (text/html"], [], ""),
        (FETCHED, [], ["summary", "price", '"price":', "status", '"rows": [{'], ""),
        (FETCHED, [], ["it was away", '"attempts": 2'], ""),
        (FETCHED, [], ["j-17", "2"], "it is short: quote some words around it, too"),
        (FETCHED, [], ["DONE", "https://e.org/?q=DONE", '"url": "https://e.org/?q=DONE"', "q=DONE"], ASKED_FOR),
    ],
)
async def test_what_a_tool_brought_may_be_quoted_as_it_is_shown_and_what_stands_round_it_may_not(
    output: dict[str, Any], found: list[str], not_found: list[str], why: str
) -> None:
    for quote in found + not_found:
        (seen,) = await look(a_run(output), ("step 1", quote))
        assert seen == QuoteCheck(evidence="step:1", quote=quote, found=quote in found, why=why)


@pytest.mark.attack
@pytest.mark.parametrize("place", ["step 1", ARTIFACT])
async def test_nothing_is_proved_by_an_artifact_that_was_replaced_and_it_is_told(place: str) -> None:
    replaced = failing(ArtifactReplaced(RUN_ID, ARTIFACT))
    run = a_run(kind="artifact" if place == ARTIFACT else "value")
    (seen,) = await look(run, (place, "the first words"), artifacts=replaced)
    assert (seen.found, "somebody has replaced it" in seen.why) == (False, True)


async def test_a_bus_that_does_not_answer_costs_the_claim_and_not_the_reply() -> None:
    away = failing(TryAgain("the bus is away"))
    (seen,) = await look(a_run(), ("step:1", "the very last ones"), artifacts=away)
    assert (seen.found, seen.why) == (False, "it cannot be read at the moment: the bus is away")


async def test_what_a_task_brought_proves_nothing_that_its_tool_did_not_say() -> None:
    run = run_at(
        'run framing ; frame proofs=["value fetch", "value fetch", "value fetch"] ; plan ; continue more ;'
        'come task-1 output={"summary": "found on a page"} ; come again output={"summary": "it is so"} ;'
        "reflect continue ; plan url=next ; return"
    )
    seen = await look(run, ("step:1", "it is so"), ("step:1", "found on a page"))
    assert [one.found for one in seen] == [True, False]


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0", b"\0\0\0", b""], ids=["image", "zeros", "empty"])
async def test_of_an_artifact_that_is_no_text_the_results_that_name_it_are_evidence(content: bytes) -> None:
    claims = (("report.md", "the first words"), ("report.md", ARTIFACT), ("report.md", "the newest"))
    seen = await look(a_run(kind="artifact"), *claims, artifacts=bucket(content))
    assert [look.found for look in seen] == [True, True, False], "the newest result does not name it"
    assert seen[-1].why == "it is no text: quote what the result that names it says"


async def test_a_long_artifact_is_looked_through_to_its_end_and_no_word_of_it_is_cut() -> None:
    words = [f"{number}x{number}" for number in range(3 * PIECE // 8)]
    long = " ".join(words)
    assert {word for piece in pieces(long) for word in piece.split()} == set(words)
    edges = [len(" ".join(words[:-1]))] + [PIECE * number for number in range(1, len(long) // PIECE)]
    quotes = [" ".join(long[edge - 500 : edge + 500].split()[1:-1]) for edge in edges]
    quoted = (("report.md", quote) for quote in quotes)
    seen = await look(a_run(kind="artifact"), *quoted, artifacts=bucket(long.encode()))
    assert [look.found for look in seen] == [True] * len(quotes)


async def test_what_people_said_is_evidence_to_the_letter_where_their_word_is_wanted() -> None:
    claims = [("the person's message", f"{you} may send it") for you in ("you", "You")]
    assert [seen.found for seen in await look(a_run(kind="person"), *claims)] == [False, True]


async def test_nothing_is_looked_up_for_claims_that_cannot_be_accepted_anyway() -> None:
    assert await look(a_run(), ("step:9", "200 OK"), ("step:1", ""), ("trust me", "200 OK")) == []


@pytest.mark.attack
async def test_an_artifact_counts_only_where_it_is_what_the_journal_recorded_of_it() -> None:
    stores = MemoryArtifacts()
    written, unknown = (RUN_ID, "artifacts/critique.md"), (RUN_ID, "artifacts/unknown.md")
    stores.contents |= {(RUN_ID, "artifacts/fetch-01.html"): PAGE, written: CRITIQUE, unknown: b"not recorded"}
    async with stored(worked_example()) as store:
        artifacts = ProvenArtifacts(stores, store)
        read = [await artifacts.get(*one) for one in (written, unknown, (RUN_ID, "artifacts/none.md"))]
        assert read == [CRITIQUE, b"not recorded", None]
        stores.contents[written] += b"It is perfect.\n"
        with pytest.raises(ArtifactReplaced, match="somebody has replaced it"):
            await artifacts.get(*written)


@pytest.mark.parametrize(
    ("quote", "text", "stands"),
    [
        ("the total is 12", "In all, the total is 12.", True),
        ("the  total\nis 12", "the total\tis\n  12", True),
        ('"rows": 12', '{"rows": 12, "state": "ok"}', True),
        ("-5000", "it is -5000 C", True),
        ("5000%", "5000% more", True),
        ("it's done", "it\u2019s done", True),
        ('"Example Domain"', "Example Domain", True),
        ("“Example Domain”", "Example Domain", True),
        ("…the domain is for use...", "the domain is for use in examples", True),
        ("a &lt; b", "a < b", True),
        ("a < b", "a &lt; b", True),
        ("Example Domain", "<h1>Exa<b>mple</b> <i>Domain</i></h1>", True),
        ("fish & chips", "<td>fish &amp; chips</td>", True),
        ("fish and chips", f"<td>&#{'1' * 5000}; fish <i>and</i> chips &#{'0' * 5000}65</td>", True),
        ("合計は", "この合計は十二円", True),
        ("pay⟨U+200B⟩pal", "by pay\u200bpal", True),
        ("paypal", "by pay\u200bpal", True),
        ("the \u202etotal", "the ⟨U+202E⟩total", True),
        ("naïve price", "naïve\U000e0049 price", True),
        ("12", "112", False),
        ("12", "12.5", False),
        ("12", "3.12", False),
        ("is 12.", "is 12.5", False),
        ("1,200", "21,200", False),
        ("cat", "concatenate", False),
        ("not sent", "sent", False),
        ("sent mail", "sent no mail", False),
        ("Total", "total", False),
        ("", "anything", False),
        ("...", "anything...", False),
        ("\u2013", "a \u2013 b", False),
        ("a" * (LONGEST + 1), "a" * (LONGEST + 1), False),
        (".*", "anything .* goes", False),
        ("pay⟨U+200B⟩pal", "by paypal", False),
        ("UNSAT", "the answer is UNSAT", True),
        ("42", "42", True),
        ("42", "answer:\n  “42”.\nnext", True),
        ("42", "<p><b>42</b></p>", True),
        ("yes", "Who?\nyes!", True),
        ("42 %", "42 %", True),
        ("合計", "この合計は十二円", True),
        ("合", "この合計は十二円", False),
        ("42", "the answer is 42", False),
        ("a", "a page with a word", False),
        ("a", "a\n" * 2, True),
        ("is 4", "it is 4 o'clock", False),
        ("yes", "yesterday", False),
        ("the", "the report", False),
    ],
)
def test_a_quote_stands_where_a_reader_finds_its_words_and_a_short_one_only_as_a_whole_line(
    quote: str, text: str, stands: bool
) -> None:
    assert stands_in(quote, text) is stands


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("<" * 999 + "b", "<"),
        ("'" * 999 + "b", "'"),
        ("a " * 499 + "b", "a "),
        ('"' * 32_000 + "b" + '"' * 32_000, '"'),
    ],
)
def test_no_quote_and_text_take_long_to_compare(quote: str, text: str) -> None:
    begin = process_time()
    assert not stands_in(quote, text * (128 * 1024 // len(text)))
    assert process_time() - begin < 0.3
