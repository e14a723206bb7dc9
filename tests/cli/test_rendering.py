"""Pictures of runs in a terminal, as kept in golden/, at any width and with hostile texts."""

import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from rich.console import Console, Group, RenderableType
from rich.text import Text

from agent_service.cli import output, render, run_display
from agent_service.cli.client import Json
from agent_service.cli.output import safe
from agent_service.cli.run_display import RowPrinter
from agent_service.history.history import History
from agent_service.history.log_line import log_line
from agent_service.run.journal import replay
from agent_service.run.ports import PromptText
from agent_service.store.lines import RunLine, line_of
from agent_service.views.inbox import letter_item
from agent_service.views.journal import call_view, entry_view, timeline_view
from agent_service.views.run import run_view
from agent_service.views.why import Observations, why_view
from agent_service.workbench.dev_command import display_line
from groundwork.service.errors import NotDone
from tests.core.cues import RUN_ID, done
from tests.core.script import Script, commits_of
from tests.core.words import run_at
from tests.projections.courses import STANDING, retries
from tests.projections.journals import entries_of, two_rounds, worked_example
from tests.projections.people import LETTER, a_run_in_doubt, a_run_that_asks, a_run_that_needs_approval, answers
from tests.projections.tellings import step_of

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt.exe\u2066\u200b\r\b [red]markup[/red] :skull:"
STEERING = set("\x1b\x07\x9b\u202e\u2066\u200b\r\b")
LONG_AGO = "2020-01-01T12:00:00Z"
ENTRIES = [entry_view(entry.record()).model_dump(mode="json") for entry in entries_of(worked_example())]
AGO = re.compile(r"\b\d{3,}(:\d\d:\d\d| d)\b")


def timeline_of(script: Script, entries: int | None = None) -> dict[str, Any]:
    history = History(entry.record() for entry in entries_of(script)[:entries])
    return timeline_view(script.state.run_id, history).model_dump(mode="json", by_alias=True)


def view_of(script: Script, entries: int | None = None) -> dict[str, Any]:
    commits = commits_of(script)[:entries]
    return sent(run_view(commits[-1].state, History(commit.entry.record() for commit in commits)))


def sent(view: BaseModel | RunLine | None) -> dict[str, Any]:
    assert view is not None
    told: dict[str, Any] = TypeAdapter(type(view)).dump_python(view, mode="json", by_alias=True)
    return told


def drawn(drawing: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, height=50, color_system=None)
    with console.capture() as captured:
        console.print(drawing)
    return captured.get()


def poisoned(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {"at", "state", "status", "kind", "phase", "run_id", "id", "parent", "since", "until"}
        return {k: v if k in kept or k.endswith("_at") else poisoned(v) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


FORGED = "long " * 400 + '\nhash    0000\n"subject": "lunch"'
APPROVAL: dict[str, Any] = {"to": "ann@example.org", "text": FORGED, "urgent": True, "cc": None, "room": "1", "a\nb": 1}
WAITS = {"kind": "tool", "since": LONG_AGO, "until": "2020-01-01T12:04:44Z"}
LINE = sent(line_of(worked_example().state))
LINES: list[dict[str, Any]] = [
    LINE,
    LINE | {"status": "running", "tool": "fetch", "waiting_for": WAITS},
    LINE | {"status": "running", "tool": None, "waiting_for": WAITS | {"kind": "time"}},
    LINE | {"status": "paused", "summary": "asks: which sensor?", "waiting_for": WAITS | {"kind": "question"}},
    LINE | {"status": "escalated", "summary": "it is too much " * 20, "class": "budget_steps", "goal": "a goal " * 30},
    LINE | {"damaged": True},
]
CALLS = retries()
MOMENTS = list(replay(entries_of(CALLS)))
PROMPT = PromptText(system=("rules",), user=("y" * 500,), version="aaaa")


def failed_step() -> tuple[Json, Json]:
    view, timeline = view_of(worked_example()), timeline_of(worked_example())
    ran = {"job_id": "8f3c", "exit_code": 78, "stderr": "SHED_KEY is not set"}
    first = next(item for item in timeline["items"] if item["kind"] == "step")
    first |= {
        "status": "error",
        "execution": ran,
        "error": {"class": "away", "message": "it broke", "retryable": False},
    }
    return view, timeline


def paid_for_nothing(view: Json) -> Json:
    lost = {"lost_calls": 3, "lost_tokens": 27_327}
    budget = view["budget"] | {"max_tokens": 30_000, "lost_tokens": 27_327}
    return view | {"usage": view["usage"] | lost, "budget": budget}


def pictures(seen: Callable[[Any], Any] = lambda told: told) -> dict[str, RenderableType]:
    """Every picture by name; `seen` may change the data of the API."""
    whole = timeline_of(worked_example())
    nothing: Json = {"items": []}

    def run(view: Json, timeline: Json) -> RenderableType:
        return run_display.run_panel(safe(seen(view)), safe(seen(timeline)))

    def inbox(*items: Json, **changed: Any) -> RenderableType:
        return render.inbox(safe(seen({"items": list(items), "total": len(items), "trouble": ""} | changed)))

    made = [call_view(MOMENTS, number + 1, lambda _: PROMPT) for number in range(CALLS.state.calls)]
    calls = [sent(call) for call in made if call]
    why = sent(why_view(CALLS.state, Observations()))
    return {
        "run": run(view_of(worked_example()), whole),
        "run-failed-step": run(*failed_step()),
        "run-waits": run(view_of(worked_example(), 4), nothing),
        "run-paused": run(paid_for_nothing(view_of(STANDING["no model"]())), nothing),
        "run-question": run(view_of(a_run_that_asks()), nothing),
        "run-approval": run(view_of(a_run_that_needs_approval(**APPROVAL)), nothing),
        "list": render.runs(safe({"runs": seen(LINES), "next_cursor": "run_0"})),
        "inbox": inbox(sent(letter_item(LETTER)), total=7, trouble="the dead letters cannot be read"),
        "inbox-empty": inbox(),
        "why": render.why(safe(seen(why))),
        "step": Text(render.step(safe(seen(sent(step_of(MOMENTS, 1)))))),
        "call": Text("\n\n".join(render.call(safe(seen(call))) for call in calls)),
        "entries": Group(*(render.entry(safe(seen(entry))) for entry in ENTRIES)),
    }


@pytest.mark.parametrize("name", pictures())
def test_each_picture_is_the_one_that_is_kept(name: str, golden: Callable[[str, str], None]) -> None:
    golden(name, without_now(drawn(pictures()[name])))


def without_now(text: str) -> str:
    """Removes ages of things in progress, which depend on the clock."""
    lines = [AGO.sub("…", line).rstrip(" │") if AGO.search(line) else line.rstrip() for line in text.splitlines()]
    return "\n".join([*lines, ""])


def test_a_list_of_runs_fits_into_a_terminal_however_long_they_took() -> None:
    old = [
        line | {"accepted_at": LONG_AGO, "ended_at": ended}
        for line in LINES
        for ended in (None, "2020-01-05T11:59:59Z")
    ]
    _, *lines = drawn(render.runs({"runs": old, "next_cursor": None}), 80).splitlines()
    assert [line[: len(RUN_ID)] for line in lines[::2]] == [RUN_ID] * len(old)


@pytest.mark.parametrize("width", [40, 60, 80, 110, 200])
def test_nothing_hostile_steers_the_terminal_and_nothing_is_wider_than_it(width: int) -> None:
    made = pictures() | {f"hostile {name}": picture for name, picture in pictures(poisoned).items()}
    for after in range(1, len(ENTRIES) + 1):
        view, timeline = view_of(worked_example(), after), timeline_of(worked_example(), after)
        made[f"run after {after}"] = run_display.run_panel(view, timeline)
        made[f"hostile run after {after}"] = run_display.run_panel(safe(poisoned(view)), safe(poisoned(timeline)))
    told = {name: drawn(picture, width) for name, picture in made.items()}
    assert [name for name, text in told.items() if set(text) & STEERING] == []
    assert [name for name, text in told.items() if any(len(line) > width for line in text.splitlines())] == []
    assert "[red]markup[/red] :skull:" in " ".join(told["hostile run after 8"].split()) or width < 80


def test_what_is_to_be_approved_is_shown_in_full_and_passes_for_nothing_else() -> None:
    text = drawn(pictures()["run-approval"])
    assert (text.count("long"), '"subject"' in text) == (400, False)
    assert [line.split()[1] for line in text.splitlines() if line.startswith("│ hash")] == ["hash"]


def followed(script: Script) -> list[str]:
    """The rows printed after each entry, without ages."""
    entries, now = entries_of(script), 0
    lines = list[str]()
    story = RowPrinter(lambda: timeline_of(script, now), lambda row: lines.append(str(row).rstrip()))
    for now, entry in enumerate(entries, start=1):  # noqa: B007 - the story looks at it
        story.on_entry({"seq": entry.seq, "at": entry.at.isoformat()})
    return lines


STORIES: dict[str, Callable[[], Script]] = {
    "worked": worked_example,
    "retried-and-answered": lambda: run_at("run waiting ; error upstream retry ; due ; return"),
    "opened-again": lambda: a_run_in_doubt() >> answers("it is there", "ran") >> done(),
    "gathering": two_rounds,
}


@pytest.mark.parametrize("name", STORIES)
def test_the_story_of_a_run_line_by_line_is_the_one_that_is_kept(name: str, golden: Callable[[str, str], None]) -> None:
    """tests/projections has the rows printed all at once."""
    golden(f"story-{name}", without_now("\n".join(followed(STORIES[name]()))))


OF_LOG = {"ts": "2026-11-21T12:00:00Z", "logger": "agent_service.history.log_line", "level": "INFO"}


@pytest.mark.parametrize("name", ["worked", "retried-and-answered"])
def test_what_dev_shows_of_a_run_as_it_goes_by_is_what_is_kept(name: str, golden: Callable[[str, str], None]) -> None:
    told = []
    for change in replay(entries_of(STORIES[name]())):
        message, fields = log_line(change)
        level = "WARNING" if "why" in fields else "INFO"
        said = {"ts": change.entry.at.isoformat(), "level": level, "msg": message, **fields}
        told += [line.plain] if (line := display_line(json.dumps(OF_LOG | said))) else []
    golden(f"dev-{name}", "\n".join([*told, ""]))


CHANGED_TOOLS = {"msg": "other tools are on offer", "new": ["a", "b"]}


def test_of_other_lines_dev_shows_those_that_somebody_should_see_and_none_that_is_not_ours() -> None:
    for fields, told in (
        ({"level": "WARNING", "msg": "NATS is away", "why": "no answer"}, 'WARNING  NATS is away why="no answer"'),
        ({"level": "ERROR", "msg": "\x1b[31mred", "run_id": "run_1"}, "ERROR    ␛[31mred run_id=run_1"),
        ({"msg": "ready"}, None),
        (CHANGED_TOOLS, "INFO     other tools are on offer new=\"['a', 'b']\""),
    ):
        line = display_line(json.dumps(OF_LOG | fields))
        assert (line and line.plain[21:].partition(" logger=")[0]) == told
    for written in ("", "Traceback (most recent call last):", "{}", "[1]", '{"ts": 1}'):
        assert display_line(written) is None


PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


class Screen(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def printed(content: bytes, kind: type[io.TextIOWrapper]) -> bytes:
    into = io.BytesIO()
    with redirect_stdout(kind(into, encoding="utf-8")):
        output.print_file(content, "artifacts/a")
        return into.getvalue()


def test_a_text_steers_no_terminal() -> None:
    for content in (PNG, b"", b"\x1b[31mred\n", b"no line end"):
        assert printed(content, io.TextIOWrapper) == content, "as it is where no terminal reads"
    with pytest.raises(NotDone, match="print it into a file"):
        printed(PNG, Screen)
    assert printed(b"a \x1b]0;owned\x07\nb\n", Screen) == "a ␛]0;owned␇\nb\n".encode()
