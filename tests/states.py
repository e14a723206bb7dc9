"""Draws the states of a run from the table in `core.decide`: `python -m tests.states [--check]`.

Writes them into docs/ARCHITECTURE.md; with `--check` it writes nothing and fails if the page differs.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import get_args

from agent_service.core.decide import TABLE
from agent_service.core.events import CancelRequested, Event, TurnBroke, WakeAccepted
from agent_service.core.waiting import Deciding, Ended, Planned, Waiting

PAGE = Path(__file__).parents[1] / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- states: begin -->", "<!-- states: end -->"
COMMAND = "python -m tests.states"
STATES = tuple(kind for kind in get_args(get_args(Waiting)[0]) if kind not in (Deciding, Planned))
EVENTS: tuple[type[Event], ...] = get_args(Event)
AT_ANY_TIME = (CancelRequested, TurnBroke)
"""Events that end a run in every state: one arrow for all of them."""


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
    """Transitions of each state, merged by target."""
    for state in states:
        moves = [
            (to.__name__, event.__name__)
            for event in EVENTS
            for to in TABLE[event][1].get(state, ())
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
    return ", ".join(to.__name__ for to in TABLE[event][1].get(state, ()))


def page() -> str:
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    return "\n".join((f"{before}{begin}", *_diagram(), "", *_table(), f"{end}{after}"))


def main() -> int:
    written = page()
    if written == PAGE.read_text(encoding="utf-8"):
        return 0
    if "--check" in sys.argv[1:]:
        told = f"{PAGE} is not what the table of states says: run `{COMMAND}`"
        print(told, file=sys.stderr)  # noqa: T201 # a command
        return 1
    PAGE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
