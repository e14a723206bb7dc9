"""A mind behind the fake Claude for many runs at a time, which counts how often it is asked for each decision."""

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.chaos_load import STEPS
from tests.models.fake_anthropic import FakeAnthropic
from tests.models.model_house import action, reply, wanted

GOAL = re.compile(r"run \d+")


class CountedMind:
    """A policy of the fake. It decides by what the prompt says alone: the runs of the chaos load, as their script has
    them. `asked`: by decision, when each call for it came in, in seconds of the wall clock."""

    def __init__(self, wait_s: float) -> None:
        self.asked: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        self._wait_s = wait_s

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        text = "\n".join(block["text"] for block in body["messages"][0]["content"])
        found = GOAL.search(text)
        goal, part, step = found.group() if found else "", wanted(body), len(re.findall(r"<step number=", text))
        self.asked[goal, part, step].append(time.time())
        time.sleep(self._wait_s)  # in a thread of the fake's server
        return _decided(goal, part, step)

    def again(self) -> list[float]:
        """When a call came in for a decision that had been asked for."""
        return sorted(at for times in self.asked.values() for at in times[1:])


def _decided(goal: str, part: str, step: int) -> dict[str, Any]:
    if part == "verification":
        return {"reason": "each quote shows its item", "doubted": [], "holds": True}
    if part == "framing":
        items = [{"text": text, "proof": "step", "tool": ""} for text in ("one", "two", "three")]
        framing = {"goal_statement": "Note.", "definition_of_done": items, "constraints": [], "assumptions": []}
        return reply(framing=framing, plan=_plan(goal, 0))
    done = step >= STEPS
    return reply(reflection=_reflection(done=done), plan=None if done else _plan(goal, step))


def _plan(goal: str, step: int) -> dict[str, Any]:
    return {
        "rationale": "a note is missing",
        "outline": None,
        "actions": [action("ledger", "note", {"call": f"{goal} after step {step}"})],
        "expected_outcome": "one more note",
        "risk": None,
    }


def _reflection(*, done: bool) -> dict[str, Any]:
    met = [{"item": f"d{n}", "evidence": "step:1", "quote": "noted"} for n in (1, 2, 3)]
    return {
        "summary": "noted",
        "met": met if done else [],
        "unmet": [],
        "facts": [],
        "verdict": "done" if done else "continue",
        "outcome": "all is noted" if done else None,
    }


@contextmanager
def counted(wait_s: float) -> Iterator[tuple[CountedMind, str]]:
    """The mind, and the address at which it is asked."""
    fake = FakeAnthropic()
    mind = fake.policy = CountedMind(wait_s)
    try:
        yield mind, fake.base_url
    finally:
        fake.close()
