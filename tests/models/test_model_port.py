"""What every model adapter does, whatever provider stands behind it: the conformance suite of the port Model."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_service.core.phases import (
    Action,
    Digest,
    Framing,
    Phase,
    Plan,
    Proof,
    Reflection,
    Refusal,
    Unusable,
    Verdict,
)
from agent_service.core.state import replace
from agent_service.core.waiting import Asking, ForModel
from agent_service.errors import ModelError
from agent_service.run.ports import Question
from tests.models import fake_anthropic, fake_openai, model_house
from tests.models.model_house import (
    DIGEST,
    OPENING,
    PLAN,
    TURN,
    framing,
    planning,
    reflecting,
    reply,
    separate,
)
from tests.models.wire import KEY, Served

AnyServed = Served[Any]

FRAMED = Framing(
    goal_statement="The answer is known and written down.",
    definition_of_done=("It is found", "It is checked", "It is written down"),
    proofs=(Proof(kind="value"), Proof(kind="step"), Proof(kind="artifact")),
    constraints=("Nothing is bought",),
)
PLANNED = Plan(
    action=Action(tool="search", command="query", arguments={"text": "the answer"}),
    outline=("search", "compare", "tell"),
    expected_outcome="a page that tells it",
    rationale="nothing is known yet",
)


@pytest.fixture(params=[fake_anthropic.serve, fake_openai.serve, fake_openai.serve_ollama])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[AnyServed]:
    async with request.param() as served:
        yield served


async def test_a_fused_framing_brings_the_first_plan_along(served: AnyServed) -> None:
    served.answer(OPENING)
    answer = await served.model.prepare(framing()).make()
    assert (answer.decision, answer.plan) == (FRAMED, PLANNED)


async def test_a_fused_reflection_brings_the_next_plan_along(served: AnyServed) -> None:
    served.answer(TURN)
    answer = await served.model.prepare(reflecting()).make()
    assert isinstance(answer.decision, Reflection)
    assert (answer.decision.verdict, answer.plan) == (Verdict.CONTINUE, PLANNED)


async def test_a_plan_is_asked_for_by_itself(served: AnyServed) -> None:
    served.answer(reply(plan=PLAN))
    assert (await served.model.prepare(planning()).make()).decision == PLANNED


@pytest.mark.parametrize(
    ("said", "asked", "kind"),
    [(OPENING, framing(), Framing), (reply(plan=PLAN), planning(), Plan), (TURN, reflecting(), Reflection)],
    ids=["framing", "plan", "reflection"],
)
async def test_phases_asked_apart_are_answered_apart(
    served: AnyServed, said: dict[str, object], asked: Question, kind: type
) -> None:
    served.answer(said)
    answer = await served.model.prepare(separate(asked)).make()
    assert isinstance(answer.decision, kind)
    assert answer.plan is None


async def test_a_compaction_brings_a_digest(served: AnyServed) -> None:
    served.answer(DIGEST)
    answer = await served.model.prepare(model_house.question(reflecting(3).state, Phase.COMPACT)).make()
    assert answer.decision == Digest(memory=("The answer is 42 (step:1)",))


@pytest.mark.parametrize("said", ["", "I think so.", json.dumps(TURN) * 2, json.dumps(TURN)[:-9], "[]", "null"])
async def test_a_reply_that_is_no_decision_is_paid_for_and_kept(served: AnyServed, said: str) -> None:
    served.answer(said)
    answer = await served.model.prepare(reflecting()).make()
    assert isinstance(answer.decision, Unusable)
    assert answer.decision.raw == said[:4000]
    assert answer.decision.reason
    assert answer.usage.input_tokens > 0
    assert answer.usage.cost_usd is not None


async def test_a_refusal_is_told_in_the_words_of_the_provider(served: AnyServed) -> None:
    served.fake.refuse("This is not allowed.")
    decision = (await served.model.prepare(framing()).make()).decision
    assert isinstance(decision, Refusal)
    assert decision.category
    assert decision.explanation == "This is not allowed."


async def test_a_reply_that_was_cut_may_be_twice_as_long_the_next_time(served: AnyServed) -> None:
    served.fake.cut('{"framing": {"goal_st')
    served.answer(OPENING)
    first = framing()
    decision = (await served.model.prepare(first).make()).decision
    assert isinstance(decision, Unusable)
    assert decision.cut
    assert decision.raw == '{"framing": {"goal_st'
    asking = Asking(call=first.call + 1, phase=first.phase, longer=True)
    await served.model.prepare(replace_asking(first, asking)).make()
    assert most_tokens(served.requests[1]) == 2 * most_tokens(served.requests[0])


@pytest.mark.parametrize(
    ("status", "headers", "remedy", "error_class", "retry_after_s"),
    [
        (400, {}, "fail", "model_bad_request", None),
        (401, {}, "fail", "model_auth", None),
        (402, {}, "pause", "model_spend_limit", None),
        (403, {}, "fail", "model_auth", None),
        (404, {}, "fail", "model_not_found", None),
        (408, {}, "try_again", "model_unavailable", None),
        (413, {}, "shrink", "prompt_too_long", None),
        (429, {}, "try_again", "rate_limit", None),
        (429, {"retry-after": "17"}, "try_again", "rate_limit", 17.0),
        (429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, "try_again", "rate_limit", None),
        (500, {}, "try_again", "model_unavailable", None),
        (503, {"retry-after": "3"}, "try_again", "overloaded", 3.0),
        (504, {}, "try_again", "model_unavailable", None),
    ],
)
async def test_an_error_says_what_becomes_of_the_run(
    served: AnyServed,
    status: int,
    headers: dict[str, str],
    remedy: str,
    error_class: str,
    retry_after_s: float | None,
) -> None:
    served.fake.fail(status, headers=headers)
    with pytest.raises(ModelError) as caught:
        await served.model.prepare(framing()).make()
    assert (caught.value.remedy, caught.value.error_class) == (remedy, error_class)
    assert caught.value.retry_after_s == retry_after_s
    assert str(status) in str(caught.value)


@pytest.mark.parametrize("asked", [framing(), planning(), reflecting(1), reflecting(12)])
async def test_a_call_spends_no_more_than_its_estimate_and_is_made_as_it_says(
    served: AnyServed, asked: Question
) -> None:
    served.answer("x" * 10_000)
    call = served.model.prepare(asked)
    estimate, answer = call.estimate, await call.make()
    assert estimate is not None
    assert answer.provenance is not None
    assert answer.usage.input_tokens + answer.usage.output_tokens <= estimate.reserve.tokens
    assert answer.usage.cost_usd is not None
    assert estimate.reserve.cost_usd is not None
    assert answer.usage.cost_usd <= estimate.reserve.cost_usd
    assert served.requests[0]["model"] == estimate.model
    assert most_tokens(served.requests[0]) == estimate.reserve.reply_tokens
    assert answer.provenance.prompt_hash == estimate.prompt_hash
    assert answer.provenance.schema_hash == estimate.schema_hash


async def test_neither_answer_nor_adapter_shows_the_key(served: AnyServed) -> None:
    served.answer(OPENING)
    shown = f"{await served.model.prepare(framing()).make()!r} {served.model!r} {served.requests}"
    assert KEY not in shown


def most_tokens(request: dict[str, object]) -> int:
    """How long the reply may be, under either name."""
    most = request.get("max_tokens") or request["max_completion_tokens"]
    assert isinstance(most, int)
    return most


def replace_asking(asked: Question, asking: Asking) -> Question:
    return replace(asked, state=replace(asked.state, waiting=ForModel(asking=asking)), call=asking.call)
