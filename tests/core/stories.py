"""Random stories of a run: what it waits for, mixed with everything that may come instead of it (see `moves`)."""

from random import Random
from typing import Any

from hypothesis import strategies as st

from agent_service.core.brief import Continuations
from agent_service.core.waiting import Reserve
from tests.core.cues import a_run_of, queued
from tests.core.going_on import Move
from tests.core.moves import MOVES
from tests.core.script import Script

WAKES: dict[str, list[Any]] = {
    "max_steps": [12, 6, 6, 4, 2, 1],
    "max_reframes": [2, 1, 0, 0],
    "max_attempts": [3, 3, 2, 1],
    "max_attempts_of_run": [40, 40, 40, 4, 2],
    "max_repairs": [3, 2, 1, 0],
    "max_refused_done": [2, 1, 0],
    "max_tokens": [None, None, 1500, 700, 300],
    "max_cost_usd": [None, None, 0.5, 0.05],
    "on_budget": ["escalate", "pause"],
    "fused": [True, False],
    "max_depth": [0, 0, 1],
    "parallel_reads": [1, 1, 2, 3],
    "max_questions": [5, 5, 1],
    "deadline_named": [False, False, True],
    "on_expiry": ["reject", "escalate"],
    "approval_s": [86_400.0, 600.0],
    "max_notes": [48_000, 1000, 100],
    "continuations": [
        Continuations(retrieval_tool="fetch"),
        Continuations(retrieval_tool="fetch", max_plugin_total_time_ms=10**8),
        Continuations(retrieval_tool="browse", max_plugin_total_time_ms=10**7, parallel=2, parallel_per_tool=1),
        Continuations(retrieval_tool="fetch", max_plugin_continuations=1, max_tasks=3),
    ],
    "steps": [0, 0, 0, 7],
    "reserve": [None, None, Reserve(tokens=200, cost_usd=0.02), Reserve(tokens=300, cost_usd=None)],
}
LONG: dict[str, Any] = {"max_steps": 12, "max_attempts_of_run": 40, "max_tokens": None, "max_cost_usd": None}
"""Limits of a run that has steps behind it."""
LENGTH = 50


def begun(*, reserve: Reserve | None, steps: int, **details: Any) -> Script:
    """A run that is queued, or has some steps behind it; `reserve` is what each call of its model sets aside."""
    script = a_run_of(steps, **(details | LONG)) if steps else queued(**details)
    script.reserve = reserve
    return script


def play(details: dict[str, Any], moves: list[Move]) -> Script:
    """The story of a run that begins with `details` and then meets `moves`."""
    script = begun(**details)
    for move in moves:
        script = script >> move
    return script


def told(number: int) -> Script:
    """Story `number`: always the same one, and as unlike the others as chance makes it."""
    chance = Random(number)  # noqa: S311 - it makes stories, no secrets
    details = {name: chance.choice(choices) for name, choices in WAKES.items()}
    return play(details | {"verify": number % 2 == 1}, chance.choices(MOVES, k=LENGTH))


STORIES = st.builds(
    lambda details, moves, length: play(details, moves[:length]),
    st.fixed_dictionaries(
        {"verify": st.booleans()} | {name: st.sampled_from(choices) for name, choices in WAKES.items()}
    ),
    st.lists(st.sampled_from(MOVES), min_size=LENGTH, max_size=LENGTH),
    st.sampled_from((*range(12), *(LENGTH,) * 60)),
)
"""Stories to search for one that breaks a rule: mostly long, and yet a failure is shown by the shortest that has it."""
