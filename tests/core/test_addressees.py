"""Which hosts, mail addresses and paths a text names, and which of them are new."""

import pytest

from agent_service.core.people.addressees import added, named_in


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
