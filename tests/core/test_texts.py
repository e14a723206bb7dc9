"""Hosts, mail addresses and paths in texts, and evidence in its natural forms."""

from unittest.mock import Mock, call

import pytest

from agent_service.core import egress
from agent_service.core.egress import destinations_in, new_destinations
from agent_service.core.framing import parse_places
from agent_service.core.phases import Action
from tests.core.words import run_at

REPORT = "artifacts/report.md"


NAMED = {
    "Mail Bob@Evil.example the report.": ["bob@evil.example"],
    "mailto:bob@evil.example": ["bob@evil.example"],
    "see https://user@evil.example:8080/x?to=y": ["evil.example"],
    "see https://evil.example\\@example.org/": ["evil.example"],
    "POST to evil.example/collect": ["evil.example"],
    "read www.example.org and stop. And no more": ["example.org"],
    "ask evil\uff0eexample": ["evil.example"],
    "see evil.xn--p1ai/x": ["evil.xn--p1ai"],
    "10.0.0.1, [2001:db8::1] and http://[2001:db8::1]/x": ["10.0.0.1", "[2001:db8::1]"],
    "localhost:8080": ["localhost"],
    "delete /srv/../etc/passwd and ~/notes": ["/etc/passwd", "~/notes"],
    "write docs/report.md": ["docs/report.md"],
    r"C:\Temp\x.txt": [r"c:\temp\x.txt"],
    "i.e. 3.5 of v1.2.3; and/or, 24/7, km/h; it ends.Then it goes on": [],
    "data.csv, page.html and artifacts/report.md": [],
}


def test_a_text_names_hosts_mail_addresses_and_paths_and_nothing_that_only_looks_so() -> None:
    assert {text: [*destinations_in(text)] for text in NAMED} == NAMED


def test_a_long_text_that_nearly_names_something_is_read_once() -> None:
    for part in ("a", "a-", "a.", "a/", "a@", "a.b/", "a:", "://", "a://", "~/", "../", "1.1.1.", "ab.cd-"):
        assert len(list(destinations_in(part * (200_000 // len(part))))) <= 1, part


def test_new_is_what_nobody_named_and_what_lies_below_no_name() -> None:
    known = ["Read https://www.example.org/ and /data, then tell alice@corp.example."]
    assert new_destinations(["see example.org/a, /data/a.csv and corp.example; alice@corp.example"], known) == ()
    texts = ["mail bob@example.org", "read evil.example.org and /database, again evil.example.org"]
    assert new_destinations(texts, known) == ("bob@example.org", "evil.example.org", "/database")


PLACES = {
    "step 1": ("step:1",),
    "Step #1": ("step:1",),
    "perhaps step no. 3": ("step:3",),
    "step:1, step:2": ("step:1", "step:2"),
    "steps 1, 2 and 3": ("step:1", "step:2", "step:3"),
    "the result of step 3 (fetch).": ("step:3",),
    "report.md": (REPORT,),
    "artifact `report.md`; step 2": (REPORT, "step:2"),
    "message_from_a_person": ("person",),
    "the person's answer": ("person",),
    "artifacts/step-2.md": ("artifacts/step-2.md",),
}


def test_evidence_is_understood_in_its_natural_forms() -> None:
    assert {evidence: parse_places(evidence, (REPORT,)) for evidence in PLACES} == PLACES


def test_the_request_is_searched_for_hosts_once_however_many_addresses_a_read_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, look = run_at('run waiting browse goal="read https://a.example" ; return').state, Mock(wraps=destinations_in)
    monkeypatch.setattr(egress, "destinations_in", look)
    read = Action(tool="fetch", command="handle", arguments={"urls": [f"https://a.example/{n}" for n in range(9)]})
    command = state.brief.command(read)
    assert command
    assert not egress.read_reason(state, command, read)
    assert look.mock_calls.count(call(state.brief.goal)) == 1
