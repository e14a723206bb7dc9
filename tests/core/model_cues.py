"""What a model that costs something adds to the cues: reserves, fused openings, digests, refusals, prompts too long."""

from typing import Any

from agent_service.core.events import CallReserved, Event, ModelReplied, ModelUsage
from agent_service.core.phases import Digest, Framing, Plan, Refusal, Unusable
from agent_service.core.waiting import Reserve
from tests.core.cues import a_reflecting_run, framing, goes_on, plan, replies, returns, unavailable
from tests.core.script import Cue, Script, asks


def reserves(
    tokens: int = 400,
    cost: float | None = 0.04,
    *,
    call: int | None = None,
    if_lost: tuple[int, float | None] | None = None,
) -> Cue:
    """The most that the call may spend is set aside, before it is made."""

    def cue(script: Script) -> Event:
        asked = script.state.asking.call if script.state.asking else script.state.calls
        reserve = Reserve(tokens=tokens, cost_usd=cost, if_lost=if_lost)
        return CallReserved(at=script.now, call=call or asked, model="priced", reserve=reserve)

    return cue


def uses(usage: ModelUsage, decision: Framing | Plan | None = None) -> Cue:
    """A reply that cost exactly `usage`."""

    def cue(script: Script) -> Event:
        assert script.state.asking is not None, "nothing is asked"
        decided = decision or framing()
        return ModelReplied(at=script.now, call=script.state.asking.call, model="priced", usage=usage, decision=decided)

    return cue


def opens(first: Plan | Unusable | None = None, *items: str, **reply: Any) -> Cue:
    """A framing that brings its first plan along."""
    return replies(framing(*items), plan=first or plan(), **reply)


def digests(*memory: str, **reply: Any) -> Cue:
    return replies(Digest(memory=memory), **reply)


def refuses(category: str = "cyber", explanation: str = "") -> Cue:
    return replies(Refusal(category=category, explanation=explanation))


def too_long() -> Cue:
    """The prompt does not fit into the model."""
    return unavailable("shrink", error_class="prompt_too_long", message="413")


def page(number: int, length: int = 500) -> dict[str, Any]:
    """A result of about `length` characters."""
    return {"summary": f"page {number}: {'x' * length}"}


def a_run_of(steps: int, *, length: int = 500, **details: Any) -> Script:
    """`steps` steps are done, each with a result of `length` characters; its notes are digested where need be.

    The newest step is to be reflected upon, or to be noted in a digest first.
    """
    script = a_reflecting_run(**({"max_steps": 300, "max_attempts_of_run": 300} | details))
    for number in range(2, steps + 1):
        if script.outcomes == (asks("compact"),):
            script = script >> digests(*(f"fact {n}, known at step {number}" for n in range(30)))
        script = script >> goes_on(number=number) >> returns(output=page(number, length))
    return script


def a_compacting_run(**details: Any) -> Script:
    """Eight steps are done, and their notes are longer than they may be: a digest of them is asked for."""
    return a_run_of(8, **({"max_notes": 2000} | details))
