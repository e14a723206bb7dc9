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
        ("i.e. 3.5 of v1.2.3; and/or, 24/7, km/h; it ends.Then it goes on", []),
        ("data.csv, page.html and artifacts/report.md", []),
    ],
)
def test_a_text_names_hosts_mail_addresses_and_paths_and_nothing_that_only_looks_so(
    text: str, names: list[str]
) -> None:
    assert list(named_in(text)) == names


@pytest.mark.parametrize(
    "part", ["a", "a-", "a.", "a/", "a@", "a.b/", "a:", "://", "a://", "~/", "../", "1.1.1.", "ab.cd-"]
)
def test_a_long_text_that_nearly_names_something_is_read_once(part: str) -> None:
    assert len(list(named_in(part * (200_000 // len(part))))) <= 1


def test_new_is_what_nobody_named_and_what_lies_below_no_name() -> None:
    known = ["Read https://www.example.org/ and /data, then tell alice@corp.example."]
    assert added(["see example.org/a, /data/a.csv and corp.example; alice@corp.example"], known) == ()
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


@pytest.mark.parametrize(("quote", "text"), [("<" * 999 + "b", "<"), ("'" * 999 + "b", "'"), ("a " * 499 + "b", "a ")])
def test_no_quote_and_text_take_long_to_compare(quote: str, text: str) -> None:
    begin = process_time()
    assert not stands_in(quote, text * (128 * 1024 // len(text)))
    assert process_time() - begin < 0.3
