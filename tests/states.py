"""Draws the states of a run from the table in `core.decide`: `python -m tests.states [--check]`.

Writes docs/STATES.md, and its diagram into docs/ARCHITECTURE.md; with `--check` it writes nothing, and fails where they
are not what the table says.
"""

import inspect
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from agent_service.core.decide import TABLE
from agent_service.core.events import CancelRequested, Event, TurnBroke, WakeAccepted
from agent_service.core.waiting import Ended, Waiting

DOCS = Path(__file__).parents[1] / "docs"
PAGE, OVERVIEW = DOCS / "STATES.md", DOCS / "ARCHITECTURE.md"
BEGIN, END = "<!-- states: begin -->", "<!-- states: end -->"
COMMAND = "python -m tests.states"
STATES = tuple(state for state in TABLE if state)
EVENTS = tuple(TABLE[None])
AT_ANY_TIME = (CancelRequested, TurnBroke)
"""Events that end a run in every state: one arrow for all of them."""

HEAD = f"""<!-- Written by `{COMMAND}`: change agent_service/core/decide.py and waiting.py instead. -->
# States of a run

A run is in exactly one state: what it waits for (`RunState.waiting`). An event moves it, by the table in
`agent_service/core/decide.py`, from which this page is written. An event that leads nowhere is ignored and leaves no
entry in the journal; one that leaves the run in its state is an entry all the same.
"""


def page() -> str:
    """The page: a diagram, the table, and what each state means."""
    parts = (HEAD, *_diagram(), "", *_table(), "", *(line for state in STATES for line in _described(state)))
    return "\n".join(parts).rstrip() + "\n"


def _diagram() -> Iterator[str]:
    yield from ("```mermaid", "stateDiagram-v2", f"    [*] --> {_to(None, WakeAccepted)}: WakeAccepted")
    arrows = list(_arrows(state for state in STATES if state is not Ended))
    ends = [f"    {arrow}" for arrow in arrows if f"--> {Ended.__name__}" in arrow]
    yield from (
        "    state Alive {",
        *(f"        {arrow}" for arrow in arrows if f"    {arrow}" not in ends),
        "    }",
        *ends,
    )
    yield f"    Alive --> {Ended.__name__}: {', '.join(event.__name__ for event in AT_ANY_TIME)}"
    yield from (f"    {Ended.__name__} --> [*]", "```")


def _arrows(states: Iterable[type[Waiting]]) -> Iterator[str]:
    """The moves out of each state, those to the same state on one arrow."""
    for state in states:
        moves = [
            (to.__name__, event.__name__)
            for event, rule in TABLE[state].items()
            for to in rule.to
            if to is not state and event not in AT_ANY_TIME
        ]
        for to, events in groupby(sorted(moves), key=lambda move: move[0]):
            yield f"{state.__name__} --> {to}: {', '.join(event for _, event in events)}"


def _table() -> Iterator[str]:
    yield f"| | {' | '.join(state.__name__ for state in STATES)} |"
    yield f"|---|{'---|' * len(STATES)}"
    for event in EVENTS:
        yield f"| {event.__name__} | {' | '.join(_to(state, event) or 'ignored' for state in STATES)} |"


def _to(state: type[Waiting] | None, event: type[Event]) -> str:
    return ", ".join(to.__name__ for to in TABLE[state][event].to)


def _described(state: type[Waiting]) -> Iterator[str]:
    about, _, rest = inspect.cleandoc(state.__doc__ or "").partition("\n\n")
    yield from (f"## {state.__name__}", "", about, "")
    yield from (f"  {line.strip()}" if line.startswith(" ") else f"- {line}" for line in rest.splitlines())
    yield ""


def pages() -> dict[Path, str]:
    """What is written where: the page, and its diagram in the middle of another."""
    overview = OVERVIEW.read_text(encoding="utf-8")
    before, begin, rest = overview.partition(BEGIN)
    _, end, after = rest.partition(END)
    return {PAGE: page(), OVERVIEW: "\n".join((f"{before}{begin}", *_diagram(), f"{end}{after}"))}


def main() -> int:
    differing = {file: text for file, text in pages().items() if not _has(file, text)}
    if "--check" not in sys.argv[1:]:
        for file, text in differing.items():
            file.write_text(text, encoding="utf-8")
        return 0
    for file in differing:
        told = f"{file} is not what the table of states says: run `{COMMAND}`"
        print(told, file=sys.stderr)  # noqa: T201 # a command
    return 1 if differing else 0


def _has(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
