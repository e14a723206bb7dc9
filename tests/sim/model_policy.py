"""Decisions of models from the text of their prompts alone."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.sim.servers.model import Prompt

Json = dict[str, Any]
_STEP = re.compile(r'<step number="(\d+)" tool="([^"]+)" command="([^"]+)" status="(\w+)"[^>]*>(.*?)</step>', re.DOTALL)
_MESSAGE = re.compile(r"<message_from_a_person[^>]*>(.*?)</message_from_a_person>", re.DOTALL)
_ITEM = re.compile(r"^- (d\d+): ", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    number: int
    tool: str
    status: str
    text: str


@dataclass(frozen=True)
class View:
    prompt: Prompt

    @cached_property
    def text(self) -> str:
        return self.prompt.user

    @cached_property
    def goal(self) -> str:
        return self.text.partition("<goal>")[2].partition("</goal>")[0].strip()

    @cached_property
    def steps(self) -> list[Step]:
        found = _STEP.findall(self.text)
        return [Step(int(number), tool, status, text) for number, tool, _, status, text in found]

    @cached_property
    def said(self) -> list[str]:
        return [text.strip() for text in _MESSAGE.findall(self.text)]

    @cached_property
    def items(self) -> list[str]:
        return _ITEM.findall(self.text)

    @property
    def frames(self) -> bool:
        return "Frame the goal" in self.text or "frame the goal" in self.text

    @property
    def verifies(self) -> bool:
        return self.prompt.shape == "verification"

    @property
    def reflects(self) -> bool:
        return "in `reflection`" in self.text and not self.frames

    @cached_property
    def good(self) -> list[Step]:
        return [step for step in self.steps if step.status == "ok"]


Chooses = Callable[[View], Json]
"""Returns the next decision: one of `act`, `ask`, `wait`, or a verdict such as `done`."""


def act(call: str, **arguments: Any) -> Json:
    actions = [{"call": call, "arguments_json": json.dumps(arguments)}]
    return {"plan": {"rationale": "it is what comes next", "actions": actions}}


def together(*acts: Json) -> Json:
    actions = [action for one in acts for action in one["plan"]["actions"]]
    return {"plan": {"rationale": "they do not need each other", "actions": actions}}


def ask(question: str, *choices: str) -> Json:
    return {"ask": {"question": question, "choices": list(choices)}}


def wait(seconds: float) -> Json:
    return {"wait": {"why": "it is too early", "seconds": seconds}}


DONE, ESCALATE, REFRAME = ({"verdict": which} for which in ("done", "escalate", "reframe"))
FRAMING = {
    "goal_statement": "All of it is there.",
    "definition_of_done": [{"text": text, "proof": "step"} for text in ("one", "two", "three")],
}
LINE = "line "
"""Text in every tool's result, which proofs quote."""


def thinks(chooses: Chooses) -> Callable[[Prompt], Json]:
    """A model that frames, follows `chooses`, and proves its claims by the newest successful step."""

    def decides(prompt: Prompt) -> Json:
        view = View(prompt)
        if view.verifies:
            return {"reason": "it is shown", "doubted": [], "holds": True}
        chosen = chooses(view)
        if view.frames:
            return {"framing": FRAMING} | (chosen if "verdict" not in chosen else {})
        if not view.reflects:
            return chosen
        if "verdict" not in chosen:
            return {"reflection": {"summary": "seen", "verdict": "continue"}} | chosen
        met = _claims(view) if chosen == DONE else []
        return {"reflection": {"summary": "seen", "met": met, "verdict": chosen["verdict"]}}

    return decides


def _claims(view: View) -> list[Json]:
    if not view.good:
        return []
    newest = view.good[-1]
    return [
        {"item": item, "evidence": f"step:{newest.number}", "quote": LINE.strip()} for item in dict.fromkeys(view.items)
    ]
