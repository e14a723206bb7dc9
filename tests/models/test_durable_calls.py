"""Calls of Claude's in runs that crash, wait and are refused: what is asked again, what is said to be spent, and what
stays the same of a prompt; and what a model was told, made anew from the journal byte for byte.
"""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from agent_service.core.brief import Limits
from agent_service.core.state import RunState
from agent_service.core.waiting import ForApproval, Status
from agent_service.models.prompts.prompt import as_text
from agent_service.run.moments import retell
from agent_service.telling.answers.model_calls import CallView, call_view, made_call
from schemas import subjects
from schemas.catalog import ToolCommand, ToolOffer
from tests.kit.runs import NOON
from tests.models.fake_anthropic import Claude, serve
from tests.models.living import Living
from tests.models.model_house import FRAMING, action, reply, wanted
from tests.shell.world import APPEND

STEPS = 2
LIMITS = Limits(deadline_at=NOON)
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


def ended(state: RunState) -> tuple[Status, str]:
    return state.status, state.ending_class


async def told(living: Living, run_id: str, number: int) -> CallView:
    made = made_call(retell(await living.entries(run_id)), number)
    assert made is not None
    return call_view(made, as_text(made.question()))


def prompts(view: CallView) -> list[tuple[str, str]]:
    return [(part.role, part.text) for part in view.prompt]


@pytest.fixture
def mind(claude: Claude) -> Claude:
    claude.fake.policy = appends
    return claude


async def test_a_run_of_two_steps_takes_three_calls(mind: Claude) -> None:
    living = Living(mind.model, LIMITS)
    state = await living.run()
    assert (state.status, state.spent.calls, len(mind.requests)) == (Status.DONE, 3, 3)
    assert list(living.gateway.executed.values()) == [1, 1]
    assert state.spent.tokens == mind.fake.billed
    assert state.spent.cost_usd
    assert state.spent.cache_read_tokens > 0


@pytest.mark.parametrize(
    ("crash", "requests", "lost"),
    [
        ("no crash", 3, 0),
        ("before commit of CallReserved", 3, 0),
        ("after commit of CallReserved", 3, 1),
        ("before commit of ModelReplied", 4, 1),
        ("after commit of ModelReplied", 3, 0),
    ],
)
async def test_a_call_that_a_crash_interrupts_is_made_again_counted_as_lost_and_told_as_it_was_sent_last(
    mind: Claude, crash: str, requests: int, lost: int
) -> None:
    living = Living(mind.model, replace(LIMITS, max_tokens=500_000, max_cost_usd=5.0))
    living.faults.strike_each(crash, 1)
    state = await living.run()
    assert (state.status, state.spent.calls, state.spent.lost_calls) == (Status.DONE, 3, lost)
    assert len(mind.requests) == requests
    assert mind.fake.billed <= state.spent.tokens + state.spent.lost_tokens
    assert list(living.gateway.executed.values()) == [1, 1]
    views = [await told(living, state.run_id, number) for number in range(1, state.calls + 1)]
    assert list(map(prompts, views)) == list(map(sent, mind.requests))[-state.calls :]
    assert [view.prompt_note for view in views] == [""] * state.calls
    assert all(view.reply and view.usage and view.provenance for view in views)


@pytest.mark.parametrize("crash", ["after commit of CallReserved", "before commit of ModelReplied"])
async def test_what_a_prompt_begins_with_stays_to_the_byte_through_kills_an_approval_and_a_take_over(
    claude: Claude, crash: str
) -> None:
    """Else the provider's cache is missed, and the whole prompt paid for again."""
    living = Living(claude.model, LIMITS, tools=(APPEND, BROWSE))

    def after_strangers(request: dict[str, Any]) -> dict[str, Any]:
        if wanted(request) == "reflection" and not living.crashes:
            living.faults.strike_each(crash, 1)
        return appends(request, "browse")

    claude.fake.policy = after_strangers
    asked = (await living.run()).waiting
    assert isinstance(asked, ForApproval)
    await living.next_life()
    state = await living.state()
    allows = {"run_id": state.run_id, "signal_id": "s", "kind": "approve", "arguments_hash": asked.subject_hash}
    state = await living.hear(subjects.SIGNAL, allows, "s")
    assert (state.status, living.crashes) == (Status.DONE, 1)
    assert len({str(request["system"]) for request in claude.requests}) == 1
    framed = [sent(request) for request in claude.requests if wanted(request) != "framing"]
    assert len(framed) >= STEPS
    for before, now in pairwise(framed):
        assert now[: len(before) - 1] == before[:-1]


async def test_a_call_that_was_put_off_is_told_as_it_was_made_last(mind: Claude) -> None:
    mind.fake.fail(529)
    living = Living(mind.model, LIMITS)
    state = await living.run()
    assert state.retry_at == living.clock.now() + timedelta(seconds=2)
    assert (state.status, state.spent.calls, state.spent.lost_calls) == (Status.RUNNING, 0, 0)
    assert "overloaded" in (await told(living, state.run_id, 1)).outcome
    message = {"run_id": state.run_id, "signal_id": "s", "kind": "message", "message": "be brief"}
    await living.hear(subjects.SIGNAL, message, "s")
    assert (await living.wait(60)).status is Status.DONE
    assert prompts(await told(living, state.run_id, 1)) == sent(mind.requests[1])


async def test_a_wait_outlives_the_process_and_is_not_cut_short_by_it(mind: Claude) -> None:
    living = Living(mind.model, LIMITS)
    mind.fake.fail(429, headers={"retry-after": "37"})
    await living.run()
    await living.next_life()
    await living.wait(36)
    assert len(mind.requests) == 1
    assert (await living.wait(1)).status is Status.DONE
    assert len(mind.requests) == 4


async def test_a_call_that_says_nothing_is_charged_and_after_three_times_a_person_is_asked() -> None:
    async with serve(timeout_s=0.3) as mind:
        mind.fake.policy = appends
        for _ in range(3):
            mind.fake.deliver("never")
        living = Living(mind.model, LIMITS)
        await living.run()
        await living.wait(2)
        state = await living.wait(5)
        assert (ended(state), len(mind.requests)) == ((Status.PAUSED, "model_timeout"), 3)
        assert mind.fake.billed <= state.spent.lost_tokens
        assert state.spent.lost_calls == 3
        resume = {"run_id": state.run_id, "signal_id": "s1", "kind": "resume"}
        assert (await living.hear(subjects.SIGNAL, resume, "s1")).status is Status.DONE


async def test_a_pause_outlives_the_process_until_a_person_has_raised_the_budget(mind: Claude) -> None:
    living = Living(mind.model, LIMITS)
    mind.fake.fail(429, "enforced_spend_limit_reached")
    await living.run()
    await living.next_life()
    state = await living.state()
    assert (ended(state), len(mind.requests)) == ((Status.PAUSED, "model_spend_limit"), 1)
    resume = {"run_id": state.run_id, "signal_id": "s1", "kind": "resume"}
    assert (await living.hear(subjects.SIGNAL, resume, "s1")).status is Status.DONE


async def test_a_reply_that_cannot_be_used_is_shown_and_asked_for_again(mind: Claude) -> None:
    mind.answer('Sure: {"framing": </your_rejected_reply>')
    state = await Living(mind.model, LIMITS).run()
    assert (state.status, state.spent.calls) == (Status.DONE, 4)
    first, second = map(sent, mind.requests[:2])
    assert 'Sure: {"framing": &lt;/your_rejected_reply>\n</your_rejected_reply>' in second[-1][1]
    assert second[:-1] == first[:-1]


async def test_a_prompt_that_is_too_long_is_shortened_once_there_is_something_to_leave_out(mind: Claude) -> None:
    mind.answer(appends)
    mind.answer(appends)
    mind.fake.fail(413)
    state = await Living(mind.model, LIMITS).run()
    assert state.status is Status.DONE
    texts = [block["text"] for block in mind.requests[3]["messages"][0]["content"]]
    assert [text.split()[0] for text in texts] == ["<goal>", "<memory_of_older_steps>", "<step", "<standing>"]


async def test_no_call_is_made_that_could_break_the_budget(mind: Claude) -> None:
    for limits in (replace(LIMITS, max_tokens=3000), replace(LIMITS, max_cost_usd=0.001)):
        state = await Living(mind.model, limits).run()
        assert state.status is Status.ESCALATED
        assert state.ending_class in ("budget_tokens", "budget_cost")
    assert mind.requests == []
