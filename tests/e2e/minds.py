"""A mind behind the fake API: it records with a write-tier tool a number of times, and can be held in mid-thought."""

import itertools
import re
import threading
from pathlib import Path
from typing import Any

from tests.models.model_house import action, reply, wanted
from tests.models.wire import KEY


class Hold:
    """A call that the mind thinks about for as long as a test wants."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.over = threading.Event()


class RecordingMind:
    """A policy of the fake API. It decides by what the prompt says alone, as a model would.

    Step n records a line in `<file><n>`: the same action again and again would be a stuck loop.
    """

    def __init__(self, file: Path, *, steps: int) -> None:
        self._file = file
        self._steps = steps
        file.parent.mkdir(exist_ok=True)
        self._holds: dict[int, Hold] = {}
        self._calls = itertools.count(1)

    def lines(self) -> list[int]:
        """How many lines each step has recorded."""
        files = (Path(f"{self._file}{step}") for step in range(1, self._steps + 1))
        return [len(file.read_text().splitlines()) if file.exists() else 0 for file in files]

    def hold(self, call: int) -> Hold:
        """Think about the `call`-th request until told that it is over."""
        return self._holds.setdefault(call, Hold())

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        hold = self._holds.get(next(self._calls))
        if hold:
            hold.reached.set()
            hold.over.wait(30)
        return self._decided(body)

    def _decided(self, body: dict[str, Any]) -> dict[str, Any]:
        if wanted(body) == "verification":
            return {"reason": "each quote shows its item", "doubted": [], "holds": True}
        if wanted(body) == "framing":
            items = [{"text": text, "proof": "step", "tool": ""} for text in ("one", "two", "three")]
            framing = {
                "goal_statement": "Lines are recorded.",
                "definition_of_done": items,
                "constraints": [],
                "assumptions": [],
            }
            return reply(framing=framing, plan=self._plan(1))
        text = "\n".join(block["text"] for block in body["messages"][0]["content"])
        step = len(re.findall(r"<step number=", text))
        done = step >= self._steps
        return reply(reflection=_reflection(done=done), plan=None if done else self._plan(step + 1))

    def _plan(self, step: int) -> dict[str, Any]:
        return {
            "rationale": "a line is missing",
            "outline": None,
            "actions": [action("probe", "record", {"file": f"{self._file}{step}"})],
            "expected_outcome": "one more line",
            "risk": None,
        }


def _reflection(*, done: bool) -> dict[str, Any]:
    return {
        "summary": "a line was recorded",
        "met": [{"item": f"d{n}", "evidence": "step:1", "quote": "recorded"} for n in (1, 2, 3)] if done else [],
        "unmet": [],
        "facts": [],
        "verdict": "done" if done else "continue",
        "outcome": "all lines are recorded" if done else None,
    }


def asking(base_url: str, **more: Any) -> dict[str, Any]:
    """The agent's settings that ask the fake API."""
    return {"model": {"provider": "anthropic", "api_key": KEY, "base_url": base_url, **more}}
