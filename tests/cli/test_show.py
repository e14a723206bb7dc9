"""How runs look, drawn from views as the API gives them."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console, RenderableType

from agent_service.cli.client import AgentClient, Json
from agent_service.cli.errors import Exit, NotDone
from agent_service.cli.runs import show, views
from agent_service.cli.runs.watching import Board, Lines, watching
from agent_service.run.lines import line_of
from agent_service.run.moments import retell
from agent_service.telling.answers.entries import entry_views
from agent_service.telling.answers.runs import line_view, run_view
from agent_service.telling.heard import Heard
from agent_service.telling.history.timeline import Timeline
from tests.core.cues import RUN_ID
from tests.projections.journals import commits_of, worked_example

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt.exe\u2066\u200b\r\b [red]markup[/red] :skull:"
STEERING = set("\x1b\x07\x9b\u202e\u2066\u200b\r\b")
COMMITS = commits_of(worked_example())


def timeline_after(entries: int = len(COMMITS)) -> dict[str, Any]:
    timeline = Timeline()
    timeline.hear(retell([commit.entry for commit in COMMITS[:entries]]))
    return timeline.view(RUN_ID).model_dump(mode="json", by_alias=True)


def picture(after: int = len(COMMITS), **changed: Any) -> RenderableType:
    """Of the run after so many entries, with what of its view is `changed`."""
    return show.run(view_after(after) | changed, timeline_after(after))


def view_after(entries: int = len(COMMITS)) -> dict[str, Any]:
    """The run's view after so many entries, as the API sends it."""
    journal = [commit.entry for commit in COMMITS[:entries]]
    return run_view(COMMITS[entries - 1].state, Heard(journal)).model_dump(mode="json", by_alias=True)


def entries() -> list[dict[str, Any]]:
    return [view.model_dump(mode="json") for view in entry_views(commit.entry for commit in COMMITS)]


def drawn(*drawings: RenderableType, width: int = 100, height: int = 50) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as captured:
        for drawing in drawings:
            console.print(drawing)
    return captured.get()


def poisoned(value: Any) -> Any:
    """The same with hostile texts, but for what is no free text."""
    if isinstance(value, dict):
        kept = {"at", "state", "status", "kind", "phase", "run_id", "id", "parent", "since", "until"}
        return {k: v if k in kept or k.endswith("_at") else poisoned(v) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


@pytest.mark.parametrize("after", range(1, len(COMMITS) + 1))
@pytest.mark.parametrize("width", [20, 60, 100, 200])
def test_a_run_can_be_drawn_at_every_moment_and_width(after: int, width: int) -> None:
    text = drawn(picture(after), width=width)
    assert all(len(line) <= width for line in text.splitlines())


def test_a_run_shows_goal_criteria_steps_budget_and_what_it_left() -> None:
    text = drawn(picture())
    for part in (
        "✓ done",
        "fetch web http://mattjoyce.ai",
        "✓ the critique is written",
        "artifacts/critique.md",
        "fetch handle",
        "2 of 10",
        "4 model calls",
    ):
        assert part in text


def test_a_step_that_failed_shows_the_words_of_its_tool() -> None:
    view, timeline = view_after(), timeline_after()
    told = {"job_id": "8f3c", "exit_code": 78, "stderr": "SHED_KEY is not set"}
    for step in view["steps"]:
        step |= {"execution": told}
    first = next(item for item in timeline["items"] if item["kind"] == "step")
    first |= {"status": "error", "error": {"class": "away", "message": "it broke", "retryable": False}}
    text = drawn(show.run(view, timeline))
    assert text.count("stderr: SHED_KEY is not set") == 1
    assert "✗ step 1" in text
    assert "away: " in text


@pytest.mark.parametrize("after", range(1, len(COMMITS) + 1))
def test_nothing_hostile_in_a_run_steers_the_terminal(after: int) -> None:
    text = drawn(show.run(poisoned(view_after(after)), poisoned(timeline_after(after))))
    assert not set(text) & STEERING
    assert "[red]markup[/red] :skull:" in text


QUESTION: dict[str, Any] = {
    "kind": "question",
    "reason": "the model asks; step 1 (fetch) brought what strangers wrote; never type passwords or keys here",
    "step": None,
    "tool": None,
    "command": None,
    "arguments": None,
    "arguments_hash": None,
    "question": "Which sensor is meant?",
    "choices": ["hall", "cellar"],
    "tried": "Both are called door.",
    "would_change": "which one is read",
    "expires_at": "2026-11-28T12:00:00Z",
}


def test_a_run_shows_its_question_with_all_that_an_answer_needs() -> None:
    text = drawn(picture(4, status="paused", asks=QUESTION))
    for part in (
        *QUESTION["choices"],
        "Which sensor is meant?",
        "Both are called",
        "which one is read",
        "2026-11-28",
        "never type",
    ):
        assert part in text


def test_arguments_that_are_to_be_approved_are_shown_in_full_and_pass_for_nothing_else() -> None:
    forged = "long " * 400 + '\nhash    0000\n"subject": "lunch"'
    arguments = {"to": "ann@example.org", "text": forged, "urgent": True, "cc": None, "room": "1", "a\nb": 1}
    asks = QUESTION | {"kind": "approval", "step": 2, "tool": "mail", "command": "send", "arguments": arguments}
    asks |= {"task": None, "round": None}
    text = drawn(picture(4, status="paused", asks=asks | {"arguments_hash": "5f0c8e3a91b2d4760b7e15c2f8a96d34"}))
    assert text.count("long") == 400
    for part in (
        "step 2: mail send",
        '"to": "ann@example.org"',
        '"urgent": true',
        '"cc": null',
        '"room": "1"',
        '"a\\nb": 1',
    ):
        assert part in text
    assert '"subject"' not in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("│ hash")] == ["hash"]


def a_list(**changed: Any) -> dict[str, Any]:
    line = line_view(line_of(COMMITS[-1].state)).model_dump(mode="json", by_alias=True)
    return {"runs": [line | changed], "next_cursor": None}


def test_a_list_says_what_each_run_waits_for_or_came_to() -> None:
    waits = {"kind": "tool", "since": "2026-11-21T12:00:00Z", "until": "2026-11-21T12:04:44Z"}
    waiting = drawn(views.runs(a_list(status="running", tool="fetch", waiting_for=waits), width=140), width=140)
    assert "waits for the tool fetch, for" in waiting
    for_nobody = a_list(status="running", tool=None, waiting_for=waits | {"kind": "time"})
    assert "waits for the right time, for" in drawn(views.runs(for_nobody, width=140), width=140)
    asks = a_list(status="paused", summary="asks: which sensor?", waiting_for=waits | {"kind": "question"})
    assert "asks: which sensor?" in drawn(views.runs(asks, width=140), width=140)
    came_to = a_list(status="escalated", summary="it is too much", **{"class": "budget_steps"})
    assert "budget_steps: it is too much" in drawn(views.runs(came_to, width=140), width=140)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_a_list_shows_id_and_state_of_each_run_whole(width: int) -> None:
    told = a_list(summary="so it ended " * 20, goal="what was asked " * 20)
    row, *below = drawn(views.runs(told, width=width), width=width).splitlines()[1:]
    assert row.startswith(f"{RUN_ID}  ✓ done")
    assert "what was asked" in "".join((row, *below))
    assert ("so it ended" in row) == (not below) == (width >= 110)


def test_the_board_follows_the_run_and_never_outgrows_the_terminal() -> None:
    after = 1
    console = Console(file=io.StringIO(), width=100, height=24, color_system=None)
    board = Board(lambda: view_after(after), lambda: timeline_after(after), console)
    for after, entry in enumerate(entries(), start=1):  # noqa: B007 - the board looks at it
        board.saw(entry)
        assert len(console.render_lines(board.picture())) <= console.height
    text = drawn(board.picture())
    assert "✓ it has two paragraphs" in text
    assert "✓ reflect" in text


def test_the_board_says_that_the_agent_is_away_and_goes_on_when_it_is_back() -> None:
    away = False

    def look() -> dict[str, Any]:
        if away:
            raise NotDone("nobody there", Exit.UNREACHABLE)
        return view_after(4)

    board = Board(look, timeline_after, Console(file=io.StringIO(), width=100, height=40))
    away = True
    board.away("nobody there")
    board.saw(entries()[3])
    assert "the agent is away, waiting…" in drawn(board.picture())
    away = False
    board.away("")
    assert "step 1, fetch handle" in drawn(board.picture())


class Told(AgentClient):
    """Tells of the one run, without an agent."""

    def __init__(self) -> None: ...

    def get(self, path: str, **_: str | int | Sequence[str] | None) -> Json:
        return timeline_after() if path.endswith("/timeline") else view_after()


@pytest.mark.parametrize(
    ("width", "height", "terminal", "kind"),
    [(100, 40, True, Board), (50, 40, True, Lines), (100, 10, True, Lines), (100, 40, False, Lines)],
)
def test_a_small_terminal_or_a_file_gets_lines_instead(width: int, height: int, terminal: bool, kind: type) -> None:
    console = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=terminal, force_interactive=terminal
    )
    with watching(Told(), RUN_ID, console) as watcher:
        watcher.saw(entries()[0])
    assert isinstance(watcher, kind)


def test_nothing_hostile_on_the_board_steers_the_terminal() -> None:
    looks = (lambda: poisoned(view_after(5)), lambda: poisoned(timeline_after(5)))
    board = Board(*looks, Console(file=io.StringIO(), width=100, height=50))
    for entry in entries():
        board.saw(poisoned(entry))
    assert not set(drawn(board.picture())) & STEERING
