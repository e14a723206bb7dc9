"""What a person is told who is needed: the inbox, and why a run waits or stopped."""

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from agent_service.cli.runs import views
from agent_service.telling.answers.inbox import InboxItem
from tests.core.cues import RUN_ID

STEERING = "\x1b]0;owned\x07\u202e"


def drawn(drawing: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(drawing)
    return captured.get()


def an_inbox(*items: InboxItem | dict[str, Any], **changed: Any) -> dict[str, Any]:
    cards = [item if isinstance(item, dict) else item.model_dump(mode="json", by_alias=True) for item in items]
    return {"items": cards, "total": len(cards), "trouble": ""} | changed


A_LETTER = {
    "id": "letter:17",
    "kind": "dead_letter",
    "run_id": None,
    "seq": 17,
    "since": "2026-11-21T12:00:00Z",
    "title": "A message on agentic.start could not be handled",
    "text": "it is no JSON",
    "class": "dead_letter",
    "remedy": {"text": "mend what it names, then send it again", "command": "agentic dlq retry 17"},
    "actions": ["retry", "discard"],
}


def test_a_dead_letter_says_how_to_send_it_again_or_drop_it() -> None:
    text = drawn(views.inbox(an_inbox(A_LETTER)))
    for part in ("✗ dead letter 17", "why  it is no JSON", "agentic dlq retry 17", "or   agentic dlq drop 17"):
        assert part in text


def test_an_inbox_says_that_it_is_empty_that_there_is_more_and_what_it_could_not_read() -> None:
    assert drawn(views.inbox(an_inbox())).strip() == "nothing waits for a person"
    text = drawn(views.inbox(an_inbox(A_LETTER, total=7, trouble="the dead letters cannot be read")))
    assert "7 things wait for a person" in text
    assert "and 6 older ones: see --limit" in text
    assert "! the dead letters cannot be read" in text


def a_diagnosis(**changed: Any) -> dict[str, Any]:
    waits = {"kind": "tool", "since": "2026-11-21T12:00:00Z", "until": "2026-11-21T12:04:00Z", "what": "fetch handle"}
    facts = [{"what": "request", "text": "message 12 of AGENTIC_REQUESTS, delivered once"}]
    told = {
        "run_id": RUN_ID,
        "status": "running",
        "waiting_for": waits,
        "facts": facts,
        "verdict": "the gateway has it",
    }
    return told | {"remedy": {"text": "start the gateway", "command": "ductile-gateway serve"}} | changed


def test_why_says_what_is_waited_for_what_is_known_and_what_to_do() -> None:
    text = " ".join(drawn(views.why(a_diagnosis()), width=200).split())
    for part in (
        f"{RUN_ID} ▶ running",
        "verdict the gateway has it",
        "waits for fetch handle, since 2026-11-21 12:00:00 UTC (",
        "until 2026-11-21 12:04:00 UTC",
        "request message 12 of AGENTIC_REQUESTS, delivered once",
        "next start the gateway: ductile-gateway serve",
    ):
        assert part in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_nothing_hostile_steers_the_terminal_and_nothing_is_wider_than_it(width: int) -> None:
    letter = A_LETTER | {"text": STEERING * 20, "title": STEERING}
    text = drawn(views.inbox(an_inbox(letter)), width)
    text += drawn(views.why(a_diagnosis(verdict=STEERING, facts=[{"what": STEERING, "text": STEERING}])), width)
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert all(len(line) <= width for line in text.splitlines())
