"""`make bench-prompts`: cost of a run's prompts, fused or separate, cached or not, as JSON.

A real adapter with the fake API drives a run through the core, with a tool that answers at once. Tokens are those of
the fake API, a quarter of the bytes. Prices are those of the default model.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_service.core.events import ModelReplied, ModelUsage, QuoteCheck
from agent_service.core.facts import CallReserved
from agent_service.core.phases import Phase, Reflection
from agent_service.core.state import RunState
from agent_service.core.waiting import OpenCall
from agent_service.run.ports import Model, ModelQuestion
from tests.core.cues import queued, returns, started
from tests.core.script import Script
from tests.kit.runs import SEARCH
from tests.models.fake_anthropic import serve
from tests.models.model_house import FRAMING, PLAN, REFLECTION, action, wanted, without_nothing

GOAL = "List all services of the boiler, with date, replaced parts and cost."
RESULT = "The boiler was serviced on 7 May; the pressure valve was replaced and the bill came to 72 EUR. " * 12
QUOTE = "serviced on 7 May"


@dataclass(frozen=True, kw_only=True)
class Thought:
    """One model call: its phase, the steps before it, and its usage."""

    phase: Phase
    step: int
    usage: ModelUsage


async def run(*, steps: int, fused: bool, settings: Mapping[str, Any]) -> tuple[list[Thought], RunState]:
    async with serve(**settings) as served:
        served.fake.policy = _policy(steps)
        told = queued(goal=GOAL, context={}, fused=fused, max_steps=steps, max_attempts_of_run=10_000)
        told >> started((SEARCH,))
        thoughts = []
        while not told.state.final:
            if asking := told.state.open_call:
                step, usage = told.state.step, await _thinks(served.model, told, asking)
                thoughts.append(Thought(phase=asking.phase, step=step, usage=usage))
            else:
                told >> returns(output={"summary": RESULT})
        return thoughts, told.state


async def _thinks(model: Model, told: Script, asking: OpenCall) -> ModelUsage:
    which: Any = {"state": told.state, "call": asking.call, "phase": asking.phase, "now": told.now}
    call = model.prepare(ModelQuestion(**which))
    assert call.reserved
    told >> CallReserved(at=told.now, call=asking.call, model=call.reserved.model, reserve=call.reserved.reserve)
    answer = await call.make()
    met = answer.decision.met if isinstance(answer.decision, Reflection) else ()
    told >> ModelReplied(
        at=told.now,
        call=asking.call,
        model=answer.model,
        usage=answer.usage,
        decision=answer.decision,
        plan=answer.plan,
        seen=tuple(QuoteCheck(evidence=one.evidence, quote=one.quote, found=True) for one in met),
        prompt_bytes=answer.prompt_bytes,
    )
    return answer.usage


def _policy(steps: int) -> Any:
    """Plans search after search and ends after `steps`, from the schema and the prompt."""
    items = [{**item, "proof": "value"} for item in FRAMING["definition_of_done"]]

    def decided(body: dict[str, Any]) -> dict[str, Any]:
        blocks = [block["text"] for block in body["messages"][0]["content"]]
        step, asked = _newest_step("\n".join(blocks)), blocks[-1].rpartition("</standing>")[2]
        search = action("search", "query", {"text": f"boiler service {2001 + step}", "most": 10})
        plan = {**PLAN, "outline": None if step else PLAN["outline"], "actions": [search]}
        facts = [f"In {2000 + step} the pressure valve was replaced for {step}2 EUR (step:{step})."]
        reflection = {**REFLECTION, "met": [], "facts": facts, "verdict": None}
        if step >= steps:
            plan = {}
            met = [{"item": f"d{n}", "evidence": f"step:{step}", "quote": QUOTE} for n in (1, 2, 3)]
            reflection |= {"met": met, "verdict": "done", "outcome": "All services are listed."}
        parts = {
            "framing": {**FRAMING, "definition_of_done": items},
            "reflection": reflection,
            "plan": plan or None,
            "memory": [f"The boiler was serviced in May (step:{n})." for n in range(max(1, step - 9), step + 1)],
        }
        along = {"plan"} if "`plan`" in asked else set()
        return without_nothing({name: part for name, part in parts.items() if name in {wanted(body), *along}})

    return decided


def _newest_step(text: str) -> int:
    numbers = [int(part.split('"', 1)[0]) for part in text.split('<step number="')[1:]]
    return max(numbers, default=0)


STEPS, LONG = 10, 200


def told(thoughts: Sequence[Thought], steps: int) -> dict[str, Any]:
    """Figures of one run. Shares are of the prompt's tokens: the smallest of all calls from step 3 on."""
    usages = [thought.usage for thought in thoughts]
    later = [t.usage for t in thoughts if t.step >= 3]
    prompts = [t.usage.input_tokens for t in thoughts if t.phase is Phase.REFLECT]
    return {
        "calls_per_step": round(len(usages) / steps, 2),
        "prompt_tokens": sum(u.input_tokens for u in usages),
        "reply_tokens_per_decision": round(sum(u.output_tokens for u in usages) / len(usages)),
        "cacheable_share": round(min((u.cache_read_tokens + u.cache_write_tokens) / u.input_tokens for u in later), 3),
        "read_from_cache": round(sum(u.cache_read_tokens for u in usages) / sum(u.input_tokens for u in usages), 3),
        "growth_per_step": round((prompts[-1] - prompts[0]) / max(1, len(prompts) - 1)),
        "largest_prompt": max(u.input_tokens for u in usages),
        "cost_usd": round(sum(u.cost_usd or 0.0 for u in usages), 4),
    }


async def measure() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for phases in ("separate", "fused"):
        for cache in ("off", "5m"):
            thoughts, _ = await run(steps=STEPS, fused=phases == "fused", settings={"cache": cache})
            figures[f"{STEPS} steps, {phases}, {'no cache' if cache == 'off' else 'cached'}"] = told(thoughts, STEPS)
    thoughts, _ = await run(steps=LONG, fused=True, settings={})
    figures[f"{LONG} steps, fused, cached"] = told(thoughts, LONG)
    return figures


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure()), indent=2))  # noqa: T201 # it is what the command is for
