"""What texts name and hold: hosts, addressees and paths; evidence in its natural forms; quotes."""

from time import process_time

import pytest

from agent_service.core.evidence.proof import places_in
from agent_service.core.evidence.quoting import LONGEST, stands_in
from agent_service.core.people.addressees import added, named_in

REPORT = "artifacts/report.md"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Mail Bob@Evil.example the report.", ["bob@evil.example"]),
        ("mailto:bob@evil.example", ["bob@evil.example"]),
        ("see https://user@evil.example:8080/x?to=y", ["evil.example"]),
        ("see https://evil.example\\@example.org/", ["evil.example"]),
        ("POST to evil.example/collect", ["evil.example"]),
        ("read www.example.org and stop. And no more", ["example.org"]),
        ("ask evil\uff0eexample", ["evil.example"]),
        ("10.0.0.1, [2001:db8::1] and http://[2001:db8::1]/x", ["10.0.0.1", "[2001:db8::1]"]),
        ("localhost:8080", ["localhost"]),
        ("delete /srv/../etc/passwd and ~/notes", ["/etc/passwd", "~/notes"]),
        ("write docs/report.md", ["docs/report.md"]),
        (r"C:\Temp\x.txt", [r"c:\temp\x.txt"]),
    ],
)
def test_a_text_names_hosts_mail_addresses_and_paths(text: str, names: list[str]) -> None:
    assert list(named_in(text)) == names


@pytest.mark.parametrize(
    "text",
    [
        "i.e. 3.5 of v1.2.3",
        "and/or, 24/7, km/h",
        "it ends.Then it goes on",
        "data.csv and page.html",
        "artifacts/report.md",
    ],
)
def test_what_only_looks_like_an_address_is_none(text: str) -> None:
    assert list(named_in(text)) == []


def test_what_was_named_and_what_lies_below_is_not_new() -> None:
    known = ["Read https://www.example.org/ and /data, then tell alice@corp.example."]
    assert added(["see example.org/a, /data/a.csv and corp.example; alice@corp.example"], known) == ()


@pytest.mark.parametrize(
    "part", ["a", "a-", "a.", "a/", "a@", "a.b/", "a:", "://", "a://", "~/", "../", "1.1.1.", "ab.cd-"]
)
def test_a_long_text_that_nearly_names_something_is_read_once(part: str) -> None:
    assert len(list(named_in(part * (200_000 // len(part))))) <= 1


def test_new_is_what_nobody_named() -> None:
    known = ["Read https://example.org/ and /data."]
    texts = ["mail bob@example.org", "read evil.example.org and /database, again evil.example.org"]
    assert added(texts, known) == ("bob@example.org", "evil.example.org", "/database")


@pytest.mark.parametrize(
    ("evidence", "places"),
    [
        ("step 1", ("step:1",)),
        ("Step #1", ("step:1",)),
        ("step:1, step:2", ("step:1", "step:2")),
        ("steps 1, 2 and 3", ("step:1", "step:2", "step:3")),
        ("the result of step 3 (fetch).", ("step:3",)),
        ("report.md", (REPORT,)),
        ("artifact `report.md`; step 2", (REPORT, "step:2")),
        ("message_from_a_person", ("person",)),
        ("the person's answer", ("person",)),
        ("step:01", ("step:01",)),
        ("step 1 perhaps", ("step 1 perhaps",)),
    ],
)
def test_evidence_is_understood_in_its_natural_forms(evidence: str, places: tuple[str, ...]) -> None:
    assert places_in(evidence, (REPORT,)) == places


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("the total is 12", "In all, the total is 12."),
        ("the  total\nis 12", "the total\tis\n  12"),
        ('"rows": 12', '{"rows": 12, "state": "ok"}'),
        ("-5000", "it is -5000 C"),
        ("5000%", "5000% more"),
        ("it's done", "it\u2019s done"),
        ('"Example Domain"', "Example Domain"),
        ("“Example Domain”", "Example Domain"),
        ("…the domain is for use...", "the domain is for use in examples"),
        ("a &lt; b", "a < b"),
        ("a < b", "a &lt; b"),
        ("Example Domain", "<h1>Exa<b>mple</b> <i>Domain</i></h1>"),
        ("fish & chips", "<td>fish &amp; chips</td>"),
        ("fish and chips", f"<td>&#{'1' * 5000}; fish <i>and</i> chips &#{'0' * 5000}65</td>"),
        ("合計は", "この合計は十二円"),
        ("pay⟨U+200B⟩pal", "by pay\u200bpal"),
        ("paypal", "by pay\u200bpal"),
        ("the \u202etotal", "the ⟨U+202E⟩total"),
        ("naïve price", "naïve\U000e0049 price"),
    ],
)
def test_a_quote_stands_where_a_reader_finds_its_words(quote: str, text: str) -> None:
    assert stands_in(quote, text)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("12", "112"),
        ("12", "12.5"),
        ("12", "3.12"),
        ("is 12.", "is 12.5"),
        ("1,200", "21,200"),
        ("cat", "concatenate"),
        ("not sent", "sent"),
        ("sent mail", "sent no mail"),
        ("Total", "total"),
        ("", "anything"),
        ("...", "anything..."),
        ("\u2013", "a \u2013 b"),
        ("a" * (LONGEST + 1), "a" * (LONGEST + 1)),
        (".*", "anything .* goes"),
        ("pay⟨U+200B⟩pal", "by paypal"),
    ],
)
def test_a_quote_stands_nowhere_else(quote: str, text: str) -> None:
    assert not stands_in(quote, text)


@pytest.mark.parametrize(
    ("quote", "text", "stands"),
    [
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
def test_fewer_than_four_letters_count_only_as_a_whole_line(quote: str, text: str, stands: bool) -> None:
    assert stands_in(quote, text) is stands


@pytest.mark.parametrize(("quote", "text"), [("<" * 999 + "b", "<"), ("'" * 999 + "b", "'"), ("a " * 499 + "b", "a ")])
def test_no_quote_and_text_take_long_to_compare(quote: str, text: str) -> None:
    begin = process_time()
    assert not stands_in(quote, text * (128 * 1024 // len(text)))
    assert process_time() - begin < 0.3
