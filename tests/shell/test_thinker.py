"""One model call, as the thinker makes it: free in one step, paid in two halves, and always told as an event."""

import asyncio
from functools import partial
from typing import Any

import pytest

from agent_service.admission.limits import SharedLimits
from agent_service.admission.rate_limits import Pace
from agent_service.core.brief import Brief
from agent_service.core.effects import AskModel
from agent_service.core.events import CallReserved, ModelReplied, ModelUnavailable, Provenance
from agent_service.core.phases import Decision, Plan, Unusable
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve
from agent_service.errors import ModelError
from agent_service.kill_switch import Brake
from agent_service.run.evidence import Evidence
from agent_service.run.model_calls import Thinker
from agent_service.run.ports import Answer, Estimate, ModelCall, Question
from tests.core.cues import a_framing_run, framing, plan, reserves
from tests.core.script import NOON, Script
from tests.kit.fakes import FakeClock, MemoryArtifacts, MemoryStore
from tests.shell.world import USAGE

ESTIMATE = Estimate(
    model="sonnet", reserve=Reserve(tokens=400, cost_usd=0.04), prompt_hash="p" * 16, schema_hash="s" * 16
)
PROVENANCE = Provenance(prompt_hash="p" * 16, schema_hash="s" * 16, reply_id="msg_1", stop_reason="end_turn")


class Sonnet:
    """Answers with what it was told to answer. Fills the port Model."""

    def __init__(self, decision: Decision | None = None, along: Plan | Unusable | None = None) -> None:
        self.answer = Answer(
            decision=decision or framing(), plan=along, usage=USAGE, model="sonnet", provenance=PROVENANCE
        )
        self.estimated: Estimate | None = ESTIMATE
        self.error: ModelError | None = None
        self.questions: list[Question] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def prepare(self, question: Question) -> ModelCall:
        return ModelCall(estimate=self.estimated, make=partial(self._decide, question))

    async def _decide(self, question: Question) -> Answer:
        self.questions.append(question)
        await self.may_answer.wait()
        if self.error:
            raise self.error
        return self.answer


class Strict:
    """Finds a flaw in every plan that is marked. Fills ArgumentCheck."""

    def flaws(self, brief: Brief, planned: Plan) -> tuple[str, ...]:
        del brief
        return ("n: is no number",) if planned.action.arguments.get("n") == "flawed" else ()


def thinker(model: Sonnet, *, pace: Pace | None = None, clock: FakeClock | None = None) -> Thinker:
    evidence = Evidence(MemoryStore(), MemoryArtifacts())
    return Thinker(
        model,
        Strict(),
        evidence,
        clock := clock or FakeClock(NOON),
        Brake(),
        SharedLimits.none(clock, pace or Pace()),
        slots=4,
    )


async def asked(thinks: Thinker, run: Script) -> CallReserved | ModelReplied | ModelUnavailable | None:
    return await thinks.think(run.state, question_of(run.state))


def question_of(state: RunState) -> AskModel:
    assert state.asking is not None
    return AskModel(call=state.asking.call, phase=state.asking.phase)


async def through_both_halves(thinks: Thinker, run: Script) -> Any:
    """The reply to the call that a run asks for, when its first half is committed in between."""
    first = await asked(thinks, run)
    assert isinstance(first, CallReserved)
    return await asked(thinks, run >> first)


# Halves


async def test_a_call_whose_first_half_is_on_its_way_is_not_made_from_the_state_before_it() -> None:
    """A restart finds two entries that ask for the same call: only one of them may go on with it."""
    model, run = Sonnet(), a_framing_run() >> reserves()
    thinks = thinker(model)
    assert isinstance(await asked(thinks, run), CallReserved)
    assert await asked(thinks, run) is None
    assert model.questions == []


# Pace


@pytest.mark.parametrize("error_class", ["rate_limit", "overloaded"])
async def test_a_provider_that_says_when_to_come_back_holds_every_call_back_until_then(error_class: str) -> None:
    pace, model = Pace(now=lambda: 0.0), Sonnet()
    model.error = ModelError("try_again", error_class, "slow down", retry_after_s=40.0)
    await through_both_halves(thinker(model, pace=pace), a_framing_run())
    with pytest.raises(ModelError, match="the provider asked to wait: slow down"):
        await pace.admit(1)


# What a reply is told as


async def test_a_plan_that_comes_along_with_flawed_arguments_is_told_what_is_wrong_with_them() -> None:
    flawed = plan("fetch", n="flawed")
    reply = await through_both_halves(thinker(Sonnet(framing(), flawed)), a_framing_run())
    assert reply.decision == framing()
    assert isinstance(reply.plan, Unusable)
    assert reply.plan.reason == "arguments of fetch: n: is no number"
    assert reply.plan.flaws == ("n: is no number",)


async def test_the_question_says_whether_a_plan_may_come_along() -> None:
    model = Sonnet()
    await through_both_halves(thinker(model), a_framing_run(fused=True))
    await through_both_halves(thinker(model), a_framing_run(fused=False))
    assert [question.with_plan for question in model.questions] == [True, False]
    assert [question.now for question in model.questions] == [NOON, NOON]


@pytest.mark.parametrize(
    ("error_class", "passes_s", "replies", "trouble"),
    [
        ("model_auth", 59, False, "HTTP 401: check the key"),
        ("model_not_found", 59, False, "HTTP 401: check the key"),
        ("model_auth", 61, False, ""),
        ("model_auth", 0, True, ""),
        ("overloaded", 0, False, ""),
    ],
)
async def test_a_model_that_no_run_can_use_is_a_trouble_of_the_service_for_a_minute_or_until_it_replies(
    error_class: str, passes_s: int, replies: bool, trouble: str
) -> None:
    model, clock = Sonnet(), FakeClock()
    thinks = thinker(model, clock=clock)
    model.error = ModelError("fail", error_class, "HTTP 401: check the key")
    await through_both_halves(thinks, a_framing_run())
    clock.advance(seconds=passes_s)
    if replies:
        model.error = None
        await through_both_halves(thinks, a_framing_run())
    assert thinks.trouble == trouble
