"""What the prompts of a run cost, fused or separate, cached or not: `make bench-prompts` prints it as JSON.

Tokens are those of the fake API: a quarter of the bytes. Prices are those of the price list for the default model.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_service.core.phases import Phase
from tests.models.loop_of_thought import Course, Thought, run
from tests.models.tokens import canonical

STEPS, LONG = 10, 200


def told(course: Course, steps: int) -> dict[str, Any]:
    """The figures of one run. Shares are of the prompt's tokens, from step 3 on, the smallest of all calls."""
    usages = [thought.usage for thought in course.thoughts]
    later = [t.usage for t in course.thoughts if t.step >= 3]
    prompts = [t.usage.input_tokens for t in course.thoughts if t.phase is Phase.REFLECT]
    return {
        "calls_per_step": round(len(usages) / steps, 2),
        "prompt_tokens": sum(u.input_tokens for u in usages),
        "reply_tokens_per_decision": round(sum(u.output_tokens for u in usages) / len(usages)),
        "cacheable_share": round(min((u.cache_read_tokens + u.cache_write_tokens) / u.input_tokens for u in later), 3),
        "repeated_share": repeated(course.thoughts),
        "read_from_cache": round(sum(u.cache_read_tokens for u in usages) / sum(u.input_tokens for u in usages), 3),
        "growth_per_step": round((prompts[-1] - prompts[0]) / max(1, len(prompts) - 1)),
        "largest_prompt": max(u.input_tokens for u in usages),
        "cost_usd": round(sum(u.cost_usd or 0.0 for u in usages), 4),
        "journal_bytes_per_step": sum(course.entries) // steps,
    }


def repeated(thoughts: Sequence[Thought]) -> float:
    """Of the bytes of all prompts from step 3 on, the share that an earlier call began with, under the same schema."""
    known: set[str] = set()
    sent = shared = 0
    for thought in thoughts:
        begun, same = "", 0
        for block in _blocks(thought.request):
            begun = hashlib.sha256((begun + block).encode()).hexdigest()
            same += len(block.encode()) if begun in known else 0
            sent += len(block.encode()) if thought.step >= 3 else 0
            known.add(begun)
        shared += same if thought.step >= 3 else 0
    return round(shared / sent, 3)


def _blocks(request: Mapping[str, Any]) -> Iterator[str]:
    """The prompt's blocks in the order of the provider's cache; whoever has another schema begins anew."""
    yield canonical(request["output_config"]["format"])
    for block in (*request["system"], *request["messages"][0]["content"]):
        yield block["text"]


async def measure() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for phases in ("separate", "fused"):
        for cache in ("off", "5m"):
            course = await run(steps=STEPS, fused=phases == "fused", settings={"cache": cache})
            figures[f"{STEPS} steps, {phases}, {'no cache' if cache == 'off' else 'cached'}"] = told(course, STEPS)
    course = await run(steps=LONG, fused=True, settings={})
    figures[f"{LONG} steps, fused, cached"] = told(course, LONG)
    return figures


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure()), indent=2))  # noqa: T201 # it is what the command is for
