"""A model on the wire that says what a scenario's script decides: the script is asked what the model was asked."""

import asyncio
import json
import re
from typing import Any

from agent_service.core.phases import (
    MAX_DONE_ITEMS,
    Ask,
    Digest,
    Framing,
    Met,
    Phase,
    Plan,
    Proof,
    Reflection,
    Verification,
    Wait,
)
from agent_service.core.replacing import replace
from agent_service.core.state import RunState
from agent_service.ports import Answer, Model, ModelCall, Question
from agent_service.workbench.evaluation.scenario import Script, follower_of
from tests.models.model_house import action, reply


class Whispered:
    """A model whose server is told what to say. Fills the port Model; `policy` is that of the server."""

    def __init__(self, model: Model, script: Script) -> None:
        self._model = model
        self._follower = follower_of("fake", script)
        self._proofs = _proofs(script)
        self._asked: Question | None = None

    def prepare(self, question: Question) -> ModelCall:
        self._asked = question
        return self._model.prepare(question)

    def policy(self, body: dict[str, Any]) -> dict[str, Any] | str:
        said = self._said()
        calls = calls_of(body)
        planned = [action["call"] for action in (said.get("plan") or {"actions": []})["actions"]]
        # A call that the schema does not have would not come through the grammar of the API: then it is plain text.
        return said if set(planned) <= set(calls) else json.dumps(said)

    def _said(self) -> dict[str, Any]:
        assert self._asked is not None
        phase, answer = self._asked.phase, self._decided(self._asked.phase)
        match answer.decision:
            case Framing() as framing:
                first = answer.plan or self._decided(Phase.PLAN).decision
                return reply(framing=_framing(framing, self._proofs), **_next(first))
            case Reflection() as reflection:
                return reply(reflection=_reflection(reflection, self._asked.state), **_next(answer.plan))
            case Plan() | Ask() | Wait() as chosen:
                return reply(**_next(chosen))
            case Digest(memory=memory):
                return reply(memory=list(memory))
            case Verification(holds=holds, reason=reason, doubted=doubted):
                return {"reason": reason, "doubted": list(doubted), "holds": holds}
        raise AssertionError(f"the script says {answer.decision} in phase {phase}")

    def _decided(self, phase: Phase) -> Answer:
        assert self._asked is not None
        return asyncio.run(self._follower.prepare(replace(self._asked, phase=phase)).make())


def calls_of(body: dict[str, Any]) -> list[str]:
    """Those that can be planned; none where there is nothing to plan."""
    definitions = body["output_config"]["format"]["schema"].get("$defs", {})
    calls: list[str] = definitions["ActionReply"]["properties"]["call"].get("enum", []) if definitions else []
    return calls


def _proofs(script: Script) -> tuple[Proof, ...]:
    """Of the items of framings that fix none: as the script will claim to prove them."""
    met = [met for rule in script.rules if rule.reflect for met in rule.reflect.get("met") or ()]
    kept = {claim["item"] for claim in met if "artifact" in claim["evidence"]}
    return tuple(Proof(kind="artifact" if f"d{n}" in kept else "step") for n in range(1, MAX_DONE_ITEMS + 1))


def _framing(framing: Framing, otherwise: tuple[Proof, ...]) -> dict[str, Any]:
    proofs = framing.proofs or otherwise[: len(framing.definition_of_done)]
    items = zip(framing.definition_of_done, proofs, strict=True)
    return {
        "goal_statement": framing.goal_statement,
        "definition_of_done": [{"text": text, "proof": proof.kind, "tool": proof.tool} for text, proof in items],
        "constraints": list(framing.constraints),
        "assumptions": list(framing.assumptions),
    }


def _met(met: Met, state: RunState) -> dict[str, Any]:
    """As a model says it, which must quote. Items are named by their places, for a script knows no others."""
    place = int(met.item.removeprefix("d")) - 1 if met.item.removeprefix("d").isdigit() else len(state.done_items)
    item = state.done_items[place].id if place < len(state.done_items) else met.item
    return {"item": item, "evidence": met.evidence, "quote": met.quote or _word_of(met.evidence, state)}


def _word_of(evidence: str, state: RunState) -> str:
    """Some words that the prompt shows of it, or showed once; all of them where they are few."""
    notes = "\n".join(note.text for note in state.notes)
    kept = [record.summary.split()[:6] for record in state.completed if evidence == f"step:{record.step}"]
    step = rf'<step number="{evidence.removeprefix("step:")}".*?<untrusted_result>'
    found = re.search(
        rf"(?:{step}|Excerpt of {re.escape(evidence)}:)\s+\W*(\w\S*(?:[^\S\n]+\S+){{0,5}})", notes, re.DOTALL
    )
    return found[1] if found else " ".join(word for words in kept for word in words)


def _next(chosen: object) -> dict[str, Any]:
    match chosen:
        case Plan():
            return {"plan": _plan(chosen)}
        case Ask(question=question, choices=choices, tried=tried, would_change=would_change):
            asked = {"question": question, "choices": list(choices), "tried": tried, "would_change": would_change}
            return {"ask": asked}
        case Wait(why=why, seconds=seconds, until=until):
            return {"wait": {"why": why, "seconds": seconds, "until": until.isoformat() if until else None}}
    return {}


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "rationale": plan.rationale,
        "outline": list(plan.outline),
        "actions": [action(each.tool, each.command, each.arguments) for each in plan.actions],
        "expected_outcome": plan.expected_outcome,
        "risk": plan.risk,
    }


def _reflection(reflection: Reflection, state: RunState) -> dict[str, Any]:
    return {
        "summary": reflection.summary,
        "met": [_met(met, state) for met in reflection.met],
        "unmet": [{"item": unmet.item, "reason": unmet.reason} for unmet in reflection.unmet],
        "facts": list(reflection.facts),
        "verdict": str(reflection.verdict),
        "outcome": reflection.outcome,
    }
