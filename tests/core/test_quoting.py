"""Whether a quote stands in a text: as a reader would say, and never half a word or half a number of it."""

from time import process_time

import pytest

from agent_service.core.evidence.quoting import LONGEST, stands_in


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
