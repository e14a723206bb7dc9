"""Frame: the goal as an objective, its done-items, and the proof that each needs."""

from collections.abc import Iterator
from datetime import datetime

from agent_service.core.brief import Brief
from agent_service.core.model.asking import ask, phase_of_next
from agent_service.core.model.planning import take_next
from agent_service.core.phases import Framing, Next, Phase, Proof, Unusable
from agent_service.core.state import DoneItem, RunState, replace


def flaws_of(brief: Brief, framing: Framing) -> tuple[str, ...]:
    offered = ", ".join(skill.name for skill in brief.skills) or "none"
    unknown = dict.fromkeys(
        proof.tool for proof in _proofs(brief, framing) if proof.tool and not brief.skill(proof.tool)
    )
    missing = (f"a proof names the tool {tool[:64]!r}, which is not on offer: {offered}" for tool in unknown)
    return (*framing.flaws(), *missing, *_without_a_tool(brief, framing))


def _without_a_tool(brief: Brief, framing: Framing) -> Iterator[str]:
    if len(brief.skills) < 2:
        return
    for n, proof in enumerate(framing.proofs, start=1):
        if proof.kind == "value" and not proof.tool:
            yield f"item {n} of definition_of_done is shown by a `value`: name the tool in whose result it will stand"


def adopt(state: RunState, framing: Framing, plan: Next | Unusable | None, *, at: datetime) -> RunState:
    framed = _framed(state, framing)
    phase = phase_of_next(framed, at)
    go_on = plan is not None and phase is Phase.PLAN
    return take_next(framed, plan, (), at=at) if plan and go_on else ask(framed, phase, at=at)


def _framed(state: RunState, framing: Framing) -> RunState:
    return replace(
        state,
        framing=framing,
        original=state.original or state.framing,
        first_choice=None,
        done_items=_items(state, framing),
        summary=f"framed: {framing.goal_statement}",
    )


def _items(state: RunState, framing: Framing) -> tuple[DoneItem, ...]:
    texts, proofs = framing.definition_of_done, _proofs(state.brief, framing)
    if not proofs:
        return tuple(DoneItem(id=f"d{n}", text=text) for n, text in enumerate(texts, start=1))
    first = 1 + max((int(item.id[1:]) for item in state.done_items), default=0)
    items = enumerate(zip(texts, proofs, strict=True), start=first)
    return tuple(DoneItem(id=f"d{n}", text=text, proof=proof) for n, (text, proof) in items)


def _proofs(brief: Brief, framing: Framing) -> tuple[Proof, ...]:
    return tuple(replace(proof, tool=_tool(brief, proof)) for proof in framing.proofs)


def _tool(brief: Brief, proof: Proof) -> str:
    if proof.kind in ("artifact", "person"):
        return ""
    return proof.tool if brief.skill(proof.tool) else proof.tool.partition(".")[0]
