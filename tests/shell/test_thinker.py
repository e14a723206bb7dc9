"""One model call, as the thinker makes it: free in one step, paid in two halves, and always told as an event."""

from dataclasses import replace
from typing import Any

import pytest

from agent_service.admission.limits import SharedLimits
from agent_service.admission.rate_limits import Pace
from agent_service.core.brief import Brief
from agent_service.core.effects import AskModel
from agent_service.core.events import CallReserved, Event
from agent_service.core.phases import Phase, Plan, Unusable
from agent_service.core.state import RunState
from agent_service.errors import ModelError
from agent_service.kill_switch import Brake
from agent_service.run.evidence import Evidence
from agent_service.run.model_calls import Thinker
from agent_service.run.ports import Answer
from tests.core.cues import a_framing_run, reserves
from tests.core.script import NOON, Script
from tests.kit.fakes import FakeClock, MemoryArtifacts, MemoryStore
from tests.shell.world import FRAMED, RESERVE, Mind, act


class Hasty(Mind):
    """Frames, and brings a plan along whose arguments have a flaw."""

    def answer(self, state: RunState, phase: Phase) -> Answer:
        return replace(super().answer(state, phase), plan=act("fetch", n="flawed"))


class Strict:
    """Finds a flaw in every plan that is marked. Fills ArgumentCheck."""

    def flaws(self, brief: Brief, plan: Plan) -> tuple[str, ...]:
        del brief
        return ("n: is no number",) if plan.action.arguments.get("n") == "flawed" else ()


def thinker(mind: Mind, *, pace: Pace | None = None, clock: FakeClock | None = None) -> Thinker:
    clock = clock or FakeClock(NOON)
    evidence, limits = Evidence(MemoryStore(), MemoryArtifacts()), SharedLimits.none(clock, pace or Pace())
    return Thinker(mind, Strict(), evidence, clock, Brake(), limits, slots=4)


async def asked(thinks: Thinker, run: Script) -> Event | None:
    asking = run.state.asking
    assert asking
    return await thinks.think(run.state, AskModel(call=asking.call, phase=asking.phase))


async def through_both_halves(thinks: Thinker, run: Script) -> Any:
    """The reply to the call that a run asks for, when its first half is committed in between."""
    first = await asked(thinks, run)
    assert isinstance(first, CallReserved)
    return await asked(thinks, run >> first)


async def test_a_call_whose_first_half_is_on_its_way_is_not_made_from_the_state_before_it() -> None:
    """A restart finds two entries that ask for the same call: only one of them may go on with it."""
    mind, run = Mind(RESERVE), a_framing_run() >> reserves()
    thinks = thinker(mind)
    assert isinstance(await asked(thinks, run), CallReserved)
    assert await asked(thinks, run) is None
    assert mind.questions == []


@pytest.mark.parametrize("error_class", ["rate_limit", "overloaded"])
async def test_a_provider_that_says_when_to_come_back_holds_every_call_back_until_then(error_class: str) -> None:
    pace, mind = Pace(now=lambda: 0.0), Mind(RESERVE)
    mind.outage = ModelError("try_again", error_class, "slow down", retry_after_s=40.0)
    await through_both_halves(thinker(mind, pace=pace), a_framing_run())
    with pytest.raises(ModelError, match="the provider asked to wait: slow down"):
        await pace.admit(1)


async def test_a_plan_that_comes_along_with_flawed_arguments_is_told_what_is_wrong_with_them() -> None:
    reply = await through_both_halves(thinker(Hasty(RESERVE)), a_framing_run())
    flaw = "n: is no number"
    assert (reply.decision, reply.plan) == (FRAMED, Unusable(reason=f"arguments of fetch: {flaw}", flaws=(flaw,)))


async def test_the_question_says_whether_a_plan_may_come_along_and_what_time_it_is() -> None:
    mind = Mind(RESERVE)
    for fused in (True, False):
        await through_both_halves(thinker(mind), a_framing_run(fused=fused))
    assert [(question.with_plan, question.now) for question in mind.questions] == [(True, NOON), (False, NOON)]


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
    mind, clock = Mind(RESERVE), FakeClock()
    thinks = thinker(mind, clock=clock)
    mind.outage = ModelError("fail", error_class, "HTTP 401: check the key")
    await through_both_halves(thinks, a_framing_run())
    clock.advance(seconds=passes_s)
    if replies:
        mind.outage = None
        await through_both_halves(thinks, a_framing_run())
    assert thinks.trouble == trouble
