"""Model behind the fake API that records with a write-tier tool and can be held in mid-thought."""

import itertools
import re
import threading
from pathlib import Path
from typing import Any

from tests.models.model_house import action, reply, wanted
from tests.models.wire import KEY

STEPS = 2
ITEMS = [{"text": text, "proof": "step", "tool": ""} for text in ("one", "two", "three")]
FRAMING = {"goal_statement": "Lines are recorded.", "definition_of_done": ITEMS, "constraints": [], "assumptions": []}
MET = [{"item": f"d{n}", "evidence": "step:1", "quote": "recorded"} for n in (1, 2, 3)]
RECORDED: dict[str, Any] = {"summary": "a line was recorded", "met": [], "unmet": [], "facts": [], "outcome": None}
ON = RECORDED | {"verdict": "continue"}
DONE = RECORDED | {"verdict": "done", "met": MET, "outcome": "all is recorded"}


class Hold:
    """A model call that lasts until the test releases it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.over = threading.Event()


class RecordingMind:
    """Policy of the fake API that decides from the prompt alone, as a model would.

    Step n records a line in `<file><n>`, because repeating the same action would count as a stuck loop.
    """

    calls = STEPS + 2
    """A framing with the first plan, a reflection per step, and a verification of the claim."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._holds: dict[int, Hold] = {}
        self._asked = itertools.count(1)

    def lines(self) -> list[int]:
        """Number of recorded lines of each step."""
        files = (Path(f"{self._file}{step}") for step in range(1, STEPS + 1))
        return [len(file.read_text().splitlines()) if file.exists() else 0 for file in files]

    def hold(self, call: int) -> Hold:
        """Holds the `call`-th request until released."""
        return self._holds.setdefault(call, Hold())

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        if hold := self._holds.get(next(self._asked)):
            hold.reached.set()
            hold.over.wait(30)
        if wanted(body) == "verification":
            return {"reason": "each quote shows its item", "doubted": [], "holds": True}
        if wanted(body) == "framing":
            return reply(framing=FRAMING, plan=self._plan(1))
        text = "\n".join(block["text"] for block in body["messages"][0]["content"])
        step = len(re.findall(r"<step number=", text))
        if step < STEPS:
            return reply(reflection=ON, plan=self._plan(step + 1))
        return reply(reflection=DONE, plan=None)

    def _plan(self, step: int) -> dict[str, Any]:
        return {
            "rationale": "a line is missing",
            "outline": None,
            "actions": [action("probe", "record", {"file": f"{self._file}{step}"})],
            "expected_outcome": "one more line",
            "risk": None,
        }


def asking(base_url: str) -> dict[str, Any]:
    """Settings of an agent that uses the fake API."""
    return {"model": {"provider": "anthropic", "api_key": KEY, "base_url": base_url}}
