"""Calls of Claude's in runs that crash, wait and are refused: what is asked again, what is said to be spent, and what
stays the same of a prompt; and what a model was told, made anew from the journal byte for byte.
"""

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from agent_service.core.brief import Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.waiting import ForApproval, Status
from agent_service.models.prompts.prompt import as_text
from agent_service.run.moments import retell
from agent_service.telling.answers.model_calls import CallView, call_view, made_call
from schemas import subjects
from schemas.catalog import ToolCommand, ToolOffer
from tests.kit.runs import NOON
from tests.models.fake_anthropic import Claude
from tests.models.model_house import FRAMING, action, reply, wanted
from tests.shell.world import APPEND, World

STEPS = 2
POLICY = LimitPolicy(defaults=Limits(deadline_at=NOON, max_tokens=500_000, max_cost_usd=5.0), cap_steps=STEPS)
ITEMS = [{"text": text, "proof": "step", "tool": "append"} for text in ("It is begun", "It goes on", "It is whole")]
BROWSE = ToolOffer(
    name="browse", route="browse", output="untrusted", commands=(ToolCommand(name="handle", tier="read"),)
)


def plan(step: int, tool: str = "append") -> dict[str, Any]:
    actions = [action(tool, "handle", {"n": step})]
    return {"rationale": "", "outline": None, "actions": actions, "expected_outcome": "", "risk": None}


def reflection(step: int) -> dict[str, Any]:
    done = step == STEPS
    met = [{"item": f"d{n}", "evidence": f"step:{step}", "quote": f"line {step}"} for n in (1, 2, 3)] if done else []
    verdict = {"verdict": "done", "outcome": "both lines"} if done else {"verdict": "continue", "outcome": ""}
    return {"summary": f"line {step}", "met": met, "unmet": [], "facts": [], **verdict}


def appends(request: dict[str, Any], first: str = "append") -> dict[str, Any]:
    """A mind that uses its `first` tool, then appends, and is done. Of the run it knows what the prompt says."""
    step = sum(block["text"].startswith("<step ") for block in request["messages"][0]["content"])
    if wanted(request) == "framing":
        return reply(framing={**FRAMING, "definition_of_done": ITEMS}, plan=plan(1, first))
    return reply(reflection=reflection(step), plan=None if step == STEPS else plan(step + 1))


def sent(request: dict[str, Any]) -> list[tuple[str, str]]:
    """The prompt in blocks, each with who says it."""
    system = [("system", block["text"]) for block in request["system"]]
    return system + [("user", block["text"]) for block in request["messages"][0]["content"]]


async def told(world: World, number: int) -> CallView:
    made = made_call(retell(await world.store.entries((await world.state()).run_id)), number)
    assert made is not None
    return call_view(made, as_text(made.question()))


def prompts(view: CallView) -> list[tuple[str, str]]:
    return [(part.role, part.text) for part in view.prompt]


async def hears(world: World, kind: str, **said: Any) -> None:
    payload = {"run_id": (await world.state()).run_id, "signal_id": kind, "kind": kind, **said}
    told = {"type": subjects.SIGNAL, "payload": payload, "dedupe_key": kind}
    world.bus.put(subjects.SIGNAL, json.dumps(told).encode(), kind)
    await world.until_quiet()


@pytest.mark.parametrize(
    ("crash", "requests", "lost"),
    [
        ("no crash", 3, 0),
        ("after commit of CallReserved", 3, 1),
        ("before commit of ModelReplied", 4, 1),
        ("after commit of ModelReplied", 3, 0),
    ],
)
async def test_a_call_that_a_crash_interrupts_is_made_again_counted_as_lost_and_told_as_it_was_sent_last(
    claude: Claude, crash: str, requests: int, lost: int
) -> None:
    claude.fake.policy = appends
    world = World(model=claude.model, policy=POLICY)
    world.faults.strike_each(crash, 1)
    world.start()
    await world.until_quiet()
    state = await world.state()
    assert (state.status, state.spent.calls, state.spent.lost_calls) == (Status.DONE, 3, lost)
    assert len(claude.requests) == requests
    assert claude.fake.billed <= state.spent.tokens + state.spent.lost_tokens
    assert lost or claude.fake.billed == state.spent.tokens
    views = [await told(world, number) for number in range(1, state.calls + 1)]
    assert list(map(prompts, views)) == list(map(sent, claude.requests))[-state.calls :]
    assert [view.prompt_note for view in views] == [""] * state.calls
    assert all(view.reply and view.usage and view.provenance for view in views)


async def test_a_call_that_was_put_off_is_told_as_it_was_made_last(claude: Claude) -> None:
    claude.fake.policy = appends
    claude.fake.fail(529)
    world = World(model=claude.model, policy=POLICY)
    world.start()
    await world.until_quiet()
    state = await world.state()
    assert state.retry_at == world.clock.now() + timedelta(seconds=2)
    assert (state.spent.calls, state.spent.lost_calls) == (0, 0)
    assert "overloaded" in (await told(world, 1)).outcome
    await hears(world, "message", message="be brief")
    world.clock.advance(60)
    await world.fire_timers()
    await world.until_quiet()
    assert prompts(await told(world, 1)) == sent(claude.requests[1])


@pytest.mark.parametrize("crash", ["after commit of CallReserved", "before commit of ModelReplied"])
async def test_what_a_prompt_begins_with_stays_to_the_byte_through_kills_an_approval_and_a_take_over(
    claude: Claude, crash: str
) -> None:
    """Else the provider's cache is missed, and the whole prompt paid for again."""
    world = World(model=claude.model, policy=POLICY, tools=(APPEND, BROWSE))

    def after_strangers(request: dict[str, Any]) -> dict[str, Any]:
        if wanted(request) == "reflection" and not world.crashes:
            world.faults.strike_each(crash, 1)
        return appends(request, "browse")

    claude.fake.policy = after_strangers
    world.start()
    await world.until_quiet()
    asked = (await world.state()).waiting
    assert isinstance(asked, ForApproval)
    world.build_anew()
    await world.resume()
    await hears(world, "approve", arguments_hash=asked.subject_hash)
    assert ((await world.state()).status, world.crashes) == (Status.DONE, 1)
    assert len({str(request["system"]) for request in claude.requests}) == 1
    framed = [sent(request) for request in claude.requests if wanted(request) != "framing"]
    assert len(framed) >= STEPS
    for before, now in pairwise(framed):
        assert now[: len(before) - 1] == before[:-1]
