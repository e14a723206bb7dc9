"""A run driven through the whole agent by a real adapter and the fake API, with a tool that answers at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_service.core.brief import Limits
from agent_service.core.events import ModelReplied, ModelUsage, ToolReturned
from agent_service.core.phases import Phase
from agent_service.core.state import RunState
from agent_service.run.journal import Entry, encode_state, rehearse
from schemas.catalog import ToolCommand, ToolOffer
from tests.kit.runs import NOON
from tests.models.fake_anthropic import serve
from tests.models.living import Living
from tests.models.model_house import action, wanted, without_nothing

SEARCH = ToolOffer(
    name="search",
    route="search",
    description="Searches the archive of the house, which holds letters, bills and manuals.",
    commands=(
        ToolCommand(
            name="query",
            tier="read",
            description="Find documents that hold all the words. Gives titles, dates and the sentences around them.",
            input_schema={
                "type": "object",
                "properties": {
                    "text": {"type": "string", "description": "The words to look for, separated by blanks."},
                    "most": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
                },
                "required": ["text"],
                "additionalProperties": False,
            },
        ),
    ),
)
RESULT = "The boiler was serviced on 7 May; the pressure valve was replaced and the bill came to 72 EUR. " * 12


@dataclass(frozen=True, kw_only=True)
class Thought:
    """One model call: for what, after how many steps, what it used, and what the provider was sent."""

    phase: Phase
    step: int
    usage: ModelUsage
    request: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Course:
    """What a run left: its calls, its journal in bytes per entry, and its state in bytes after each step."""

    thoughts: list[Thought]
    entries: list[int]
    states: list[int]
    final: RunState


async def run(*, steps: int, fused: bool, settings: Mapping[str, Any], **limits: Any) -> Course:
    """A run of `steps` steps to its end, if its `limits` let it get there."""
    async with serve(**settings) as served:
        served.fake.policy = _policy(steps)
        granted = Limits(**{"deadline_at": NOON, "max_steps": steps, "max_attempts_of_run": 10_000, **limits})
        living = Living(served.model, granted, fused=fused, tools=(SEARCH,))
        living.gateway.told = {"summary": RESULT}
        final = await living.run("List all services of the boiler, with date, replaced parts and cost.")
        return _course(await living.entries(final.run_id), final, iter(served.fake.requests))


def _course(entries: Sequence[Entry], final: RunState, requests: Iterator[Mapping[str, Any]]) -> Course:
    thoughts, states = [], []
    before: RunState | None = None
    for entry, transition in rehearse(entries):
        event = entry.decoded()
        if isinstance(event, ModelReplied) and before and before.asking:
            thoughts.append(
                Thought(phase=before.asking.phase, step=before.step, usage=event.usage, request=next(requests))
            )
        before = transition.state
        if isinstance(event, ToolReturned) and before:
            states.append(len(encode_state(before)))
    return Course(thoughts=thoughts, entries=[len(entry.event) for entry in entries], states=states, final=final)


def _policy(steps: int) -> Any:
    """Plans search after search and ends after `steps`, by what the schema asks for and the prompt says."""

    def decided(body: dict[str, Any]) -> dict[str, Any]:
        blocks = [block["text"] for block in body["messages"][0]["content"]]
        step, asked = _newest_step("\n".join(blocks)), blocks[-1].rpartition("</standing>")[2]
        parts = {
            "framing": FRAMING,
            "reflection": _reflection(step, done=step >= steps),
            "plan": None if step >= steps else _plan(step + 1),
            "memory": [f"The boiler was serviced in May (step:{n})." for n in range(max(1, step - 9), step + 1)],
        }
        along = {"plan"} if "`plan`" in asked else set()
        return without_nothing({name: part for name, part in parts.items() if name in {wanted(body), *along}})

    return decided


def _newest_step(text: str) -> int:
    numbers = [int(part.split('"', 1)[0]) for part in text.split('<step number="')[1:]]
    return max(numbers, default=0)


FRAMING = {
    "goal_statement": "A list of all services of the boiler exists, each with its date, its parts and its cost.",
    "definition_of_done": [
        {"text": text, "proof": "value", "tool": "search"}
        for text in ("All services are found.", "Each has a date.", "Each has its parts and its cost.")
    ],
    "constraints": ["Only the archive is searched."],
    "assumptions": ["The archive is complete."],
}


OUTLINE = ["Search year by year.", "Compare the bills with the letters.", "End when no year is left."]
QUOTE = "serviced on 7 May"


def _plan(step: int) -> dict[str, Any]:
    return {
        "rationale": f"The bills of {2000 + step} are not looked at yet, and each year may hold a service.",
        "outline": OUTLINE if step == 1 else None,
        "actions": [action("search", "query", {"text": f"boiler service {2000 + step}", "most": 10})],
        "expected_outcome": "Bills that name the boiler.",
        "risk": None,
    }


def _reflection(step: int, *, done: bool) -> dict[str, Any]:
    return {
        "summary": f"Year {2000 + step} holds one service.",
        "met": [{"item": f"d{n}", "evidence": f"step:{step}", "quote": QUOTE} for n in (1, 2, 3)] if done else [],
        "unmet": [],
        "facts": [f"In {2000 + step} the pressure valve was replaced for {step}2 EUR (step:{step})."],
        "verdict": "done" if done else None,
        "outcome": "All services are listed." if done else None,
    }
