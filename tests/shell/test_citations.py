"""Quotes are found in texts."""

from time import process_time

import pytest

from agent_service.run.citations import LONGEST, stands_in


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
