"""A model call in its two halves always ends in an event, and arguments are held against the schemas of tools."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from agent_service.admission.limits import SharedLimits
from agent_service.admission.rate_limits import RateLimiter
from agent_service.admission.spending import Spending
from agent_service.core.decide import decide
from agent_service.core.events import Event, ModelReplied, ModelUnavailable, ModelUsage
from agent_service.core.facts import CallReserved
from agent_service.core.phases import Plan, Unusable
from agent_service.core.waiting import CallReserve
from agent_service.errors import ModelError, Stopped
from agent_service.kill_switch import KillSwitch
from agent_service.run.model_calls import ModelCaller, flaws_of_arguments
from agent_service.run.ports import ModelCall, ModelQuestion
from agent_service.settings import QuotaSettings
from tests.core.cues import FETCH, POST, frames, framing, plan, queued, reserves, signal, started
from tests.core.script import NOON, Script
from tests.core.words import run_at
from tests.kit.fakes import FakeClock


class Mind:
    """Frames with a plan. Implements the port Model."""

    is_free = False

    def __init__(self, outage: ModelError | None = None, *, plans: Plan | None = None) -> None:
        self.outage, self.plans, self.asked = outage, plans or plan(), 0

    def prepare(self, question: ModelQuestion) -> ModelCall:
        reserve = CallReserve(tokens=700, cost_usd=0.25)
        return ModelCall(reserved=question.reserves("mind", reserve, "p", "s"), make=partial(self._decide, question))

    async def _decide(self, question: ModelQuestion) -> ModelReplied:
        self.asked += 1
        if self.outage:
            raise self.outage
        return ModelReplied(
            at=question.now,
            call=question.call,
            model="mind",
            usage=ModelUsage(input_tokens=10, output_tokens=5, cost_usd=0.001),
            decision=framing(),
            plan=self.plans if question.state.brief.fused else None,
            words=question.state.words,
        )


def model_caller(mind: Mind, *, rate_limiter: RateLimiter | None = None, clock: FakeClock | None = None) -> ModelCaller:
    clock = clock or FakeClock(NOON)
    limits = SharedLimits(Spending(clock, usd_per_day=9.0), rate_limiter)
    return ModelCaller(mind, cast("Any", None), clock, KillSwitch(), limits, asyncio.Semaphore(4))


async def asked(thinks: ModelCaller, run: Script) -> Event | None:
    asking = run.state.open_call
    assert asking
    return await thinks.think(run.state, asking)


async def through_both_halves(thinks: ModelCaller, run: Script) -> Any:
    """The reply to the open call of a run, with its reserve committed in between."""
    first = await asked(thinks, run)
    assert isinstance(first, CallReserved)
    return await asked(thinks, run >> first)


def test_a_call_is_reserved_in_the_entry_that_asks_for_it_where_nothing_lets_it_wait() -> None:
    run, clock, held = queued(), FakeClock(NOON), RateLimiter()
    asking = decide(run.state, run.event(started()))
    held.hold(9.0, "slow down")
    free = replace(model_caller(Mind()), limits=SharedLimits(Spending(clock)))
    rows: tuple[dict[str, Any], ...] = (
        {},
        {"kill_switch": KillSwitch(stopped_by="ann")},
        {"slots": asyncio.Semaphore(0)},
        {"limits": SharedLimits(Spending(clock), held)},
        {"limits": SharedLimits(Spending(clock), RateLimiter(requests_per_minute=9))},
        {"limits": SharedLimits(Spending(clock, usd_per_day=9.0))},
        {"limits": SharedLimits(Spending(clock, quota_of=lambda _: QuotaSettings(usd_per_day=9.0)))},
    )
    for row in rows:
        thinks = replace(free, **row)
        assert (CallReserved in thinks.reserve(asking).kinds) is not bool(row), row
        assert bool(thinks.calls_of(run.state.run_id)) is not bool(row)


async def test_a_call_whose_first_half_is_on_its_way_is_not_made_from_the_state_before_it() -> None:
    """A restart finds two entries that ask for the same call: only one of them may make it."""
    mind, run = Mind(), run_at("run framing") >> reserves()
    thinks = model_caller(mind)
    assert isinstance(await asked(thinks, run), CallReserved)
    assert await asked(thinks, run) is None
    assert mind.asked == 0


async def test_a_message_that_comes_before_the_reserve_of_a_call_is_not_counted_as_told_to_the_model() -> None:
    thinks, run = model_caller(Mind()), run_at("run framing")
    reserved = await asked(thinks, run)
    assert isinstance(reserved, CallReserved)
    run = run >> signal("message", message="in blue") >> reserved
    reply = await asked(thinks, run)
    assert isinstance(reply, ModelReplied)
    assert (reply.words, run.state.words) == (0, 1)


async def test_a_call_that_a_dead_process_reserved_and_that_cannot_be_made_now_may_have_cost_its_reserve() -> None:
    run = run_at("run framing") >> reserves(tokens=700)
    thinks = model_caller(Mind())
    thinks.limits.spending.usd_per_day = 0.1
    outage = await asked(thinks, run)
    assert isinstance(outage, ModelUnavailable)
    after = decide(run.state, outage).state
    assert after is not None
    assert (outage.remedy, after.spent.lost_tokens) == ("pause", 700)


@pytest.mark.parametrize("error_class", ["rate_limit", "overloaded"])
async def test_a_provider_that_says_when_to_come_back_holds_every_call_back_until_then(error_class: str) -> None:
    rate_limiter = RateLimiter()
    mind = Mind(ModelError("try_again", error_class, "slow down", retry_after_s=40.0))
    await through_both_halves(model_caller(mind, rate_limiter=rate_limiter), run_at("run framing"))
    with pytest.raises(ModelError, match="the provider asked to wait: slow down"):
        await rate_limiter.admit(1)


async def test_money_set_aside_for_a_call_that_is_not_made_is_free_again() -> None:
    """A cancel was committed before the reserve."""
    thinks, run = model_caller(Mind()), run_at("run framing")
    assert isinstance(await asked(thinks, run), CallReserved)
    assert thinks.limits.spending.aside
    thinks.abandon(run.state.run_id, run.state.calls)
    assert not thinks.limits.spending.aside


async def test_a_call_that_a_stop_prevents_while_it_waits_for_its_turn_leaves_tokens_and_money_to_others() -> None:
    class StoppedMeanwhile(RateLimiter):
        async def admit(self, tokens: int) -> None:
            await super().admit(tokens)
            thinks.kill_switch.stopped_by = "ann"

    rate_limiter = StoppedMeanwhile(tokens_per_minute=700)
    thinks = model_caller(Mind(), rate_limiter=rate_limiter)
    with pytest.raises(Stopped):
        await asked(thinks, run_at("run framing"))
    assert not thinks.limits.spending.aside
    await rate_limiter.admit(700)  # it raises an error where the tokens are gone


async def test_a_plan_that_comes_along_with_flawed_arguments_is_told_what_is_wrong_with_them() -> None:
    to = {"type": "object", "properties": {"to": {"type": "string"}}}
    command = POST.commands[0].model_copy(update={"input_schema": to})
    tools = started((POST.model_copy(update={"commands": (command,)}),))
    flawed = Mind(plans=plan("post", command.name, to=1))
    reply = await through_both_halves(model_caller(flawed), queued() >> tools)
    (flaw,) = reply.plan.flaws
    assert (reply.decision, reply.plan) == (framing(), Unusable(reason=f"arguments of post: {flaw}", flaws=(flaw,)))
    alone = await through_both_halves(model_caller(flawed), queued(fused=False) >> tools)
    assert alone.plan is None


async def test_a_plan_that_cannot_be_stored_makes_the_whole_reply_unusable_and_one_that_spells_it_does_not() -> None:
    for argument in (float("nan"), [{"n": float("-inf")}], "\ud800", "a\0b", "x" * 200_000):
        reply = await through_both_halves(model_caller(Mind(plans=plan(n=argument))), run_at("run framing"))
        assert (type(reply.decision), reply.plan) == (Unusable, None)
    for argument in ("\\u0000", "[^\\\\u0000-\\u001f]", "NaN or Infinity"):
        reply = await through_both_halves(model_caller(Mind(plans=plan(n=argument))), run_at("run framing"))
        assert reply.plan == plan(n=argument)


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
    mind, clock = Mind(ModelError("fail", error_class, "HTTP 401: check the key")), FakeClock()
    thinks = model_caller(mind, clock=clock)
    await through_both_halves(thinks, run_at("run framing"))
    clock.advance(seconds=passes_s)
    if replies:
        mind.outage = None
        await through_both_halves(thinks, run_at("run framing"))
    assert thinks.trouble == trouble


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TWICE = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(40)}
TREE = {
    "$defs": {"node": {"properties": {"n": {"type": "integer"}, "below": {"items": {"$ref": "#/$defs/node"}}}}},
    "$ref": "#/$defs/node",
}
UNUSABLE, BUSY = "the schema of post cannot be used", "it has more than 5000 parts"


@pytest.mark.parametrize(
    ("schema", "arguments", "flaw"),
    [
        (NUMBER, {"n": 1}, ""),
        (NUMBER, {"x": 1}, 'arguments: "n" is a required property'),
        (NUMBER, {"n": "x"}, 'n: "x" is not of type "integer"'),
        (TREE, {"below": [{"n": 1}]}, ""),
        (TREE, {"below": [{"n": "x"}]}, 'below/0/n: "x" is not of type "integer"'),
        ({"type": 7}, {"n": 1}, UNUSABLE),
        ({"$ref": "http://127.0.0.1:1/x.json"}, {"n": 1}, UNUSABLE),
        ({"$defs": TWICE | {"d40": {}}, "$ref": "#/$defs/d0"}, {"n": 1}, BUSY),
        (
            {"properties": {"n": {"$id": "urn:n", "$defs": TWICE | {"d40": {}}, "$ref": "#/$defs/d0"}}},
            {"n": 1},
            UNUSABLE,
        ),
        (
            {"$id": "urn:tree", "properties": {"n": {"type": "integer"}, "below": {"$ref": "#"}}},
            {"below": {"n": 1}},
            "",
        ),
        ({"anyOf": [{"required": [f"x{n}"]} for n in range(20_000)]}, {"n": 1}, BUSY),
    ],
)
def test_arguments_that_do_not_fit_and_schemas_that_cannot_be_used_are_flaws(
    schema: Any, arguments: dict[str, Any], flaw: str
) -> None:
    command = POST.commands[0].model_copy(update={"input_schema": schema})
    made = queued() >> started((FETCH, POST.model_copy(update={"commands": (command,)}))) >> frames()
    flaws = flaws_of_arguments(made.state.brief, plan("post", command.name, **arguments).action)
    assert len(flaws) == bool(flaw)
    assert flaw in "".join(flaws)
