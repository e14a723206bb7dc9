"""What a reply decides, or everything that is wrong with it, so that one repair can mend it all.

A part that the question does not ask for is left alone, and so is a text beside the parts. A plan that cannot be used
spoils neither the framing nor the reflection beside it. Unproven claims of a reflection are no flaw here: they are
refused without a repair.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from agent_service.core.phases import Ask, Decision, Next, Phase, Reflection, Unusable, Verdict
from agent_service.models.prompts.parts import Part, Parts, verification_in
from agent_service.models.prompts.reading import Found, found_in
from agent_service.models.prompts.replies import DecisionReply, VerificationReply
from agent_service.run.ports import Question
from schemas.clipping import clipped
from schemas.values import dataclass

MOST_RAW = 3900
"""Characters of a reply that could not be used, for the journal and for the repair, which keeps 4000."""
MOST_FLAWS, LONGEST_FLAW = 16, 400

Read = tuple[Decision, Next | Unusable | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    main: Part[Decision]
    beside: Part[Next]


def read(question: Question, text: str) -> Read:
    """The decision in a reply to `question`, and what came along; Unusable, with all flaws, where it cannot be used."""
    found = found_in(text)
    wrong = _flaws_of_whole(question, found)
    if not isinstance(found.value, dict):
        return unusable(wrong, text), None
    judged = _judged(question, found.value)
    main, beside = judged.main, judged.beside
    if wrong or main.decided is None:
        return unusable((*wrong, *main.flaws, *beside.flaws), text), None
    return main.decided, unusable(beside.flaws, text) if beside.flaws else beside.decided


def read_cut(text: str, bound: str) -> Unusable:
    """A reply that ended because it had reached its `bound`: the most tokens, or the window."""
    length = f"it breaks off after {len(text)} characters" if text else "nothing of it was written down yet"
    cut = f"the reply was cut at {bound}, thinking included: {length}. Think and write less"
    return unusable((cut,), text, cut=True)


def unusable(flaws: Iterable[str], text: str, *, cut: bool = False) -> Unusable:
    told = tuple(_storable(flaw)[:LONGEST_FLAW] for flaw in flaws)
    more = (f"and {len(told) - MOST_FLAWS} more",) if len(told) > MOST_FLAWS else ()
    said = (*told[:MOST_FLAWS], *more)
    return Unusable(reason="; ".join(said), raw=clipped(_storable(text), MOST_RAW), cut=cut, flaws=said)


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _judged(question: Question, given: dict[str, Any]) -> _Judged:
    parts = Parts(given=given, state=question.state, now=question.now)
    match question.phase:
        case Phase.FRAME:
            return _framed(parts, with_plan=question.with_plan)
        case Phase.PLAN:
            return _Judged(main=_planned(parts), beside=Part())
        case Phase.COMPACT:
            memory = parts.memory()
            return _Judged(main=_null("memory") if memory.empty else memory, beside=Part())
        case Phase.VERIFY:
            return _Judged(main=verification_in(_without_asides(given)), beside=Part())
    return _reflected(parts, with_plan=question.with_plan)


def _framed(parts: Parts, *, with_plan: bool) -> _Judged:
    framing, asked = parts.framing(), parts.ask()
    if not framing.empty:
        return _Judged(main=framing, beside=parts.next() if with_plan else asked)
    return _Judged(main=_given_up(parts, "framing") if asked.empty else asked, beside=Part())


def _planned(parts: Parts) -> Part[Decision]:
    then = parts.next()
    return _given_up(parts, "plan, ask and wait") if then.empty else then


def _given_up(parts: Parts, asked: str) -> Part[Decision]:
    reflection = parts.reflection()
    if reflection.empty:
        return _null(asked)
    if reflection.decided and reflection.decided.verdict is not Verdict.ESCALATE:
        instead = "`ask` or a reflection that escalates" if asked == "framing" else "a reflection that escalates"
        return Part(flaws=(f"{asked}: null, and without it only {instead} is an answer",))
    return reflection


def _reflected(parts: Parts, *, with_plan: bool) -> _Judged:
    reflection = parts.reflection()
    if reflection.empty:
        return _Judged(main=_null("reflection"), beside=parts.next() if with_plan else Part())
    if reflection.decided is None:
        return _Judged(main=reflection, beside=parts.next() if with_plan else Part())
    return _Judged(main=_consistent(reflection.decided, parts), beside=_after(reflection.decided, parts, with_plan))


def _null(what: str) -> Part[Decision]:
    return Part(flaws=(f"{what}: null, and this is what is asked for",))


def _consistent(reflection: Reflection, parts: Parts) -> Part[Decision]:
    if reflection.verdict is Verdict.ESCALATE and isinstance(parts.ask().decided, Ask):
        why = "`escalate` ends the run, and `ask` does not: to ask, the verdict is `continue`; to end, `ask` is null"
        return Part(flaws=(f"reflection.verdict: {why}",))
    return Part(decided=reflection)


def _after(reflection: Reflection, parts: Parts, with_plan: bool) -> Part[Next]:
    return parts.next() if with_plan and reflection.verdict is Verdict.CONTINUE else Part()


def _without_asides(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without what a model only says along, such as `thoughts`."""
    parts = DecisionReply.model_fields | VerificationReply.model_fields
    return {name: value for name, value in given.items() if name in parts or not isinstance(value, str)}


def _flaws_of_whole(question: Question, found: Found) -> tuple[str, ...]:
    flaws = [found.flaw] if found.flaw else []
    if isinstance(found.value, dict) and question.phase is not Phase.VERIFY:
        unknown = [name for name in _without_asides(found.value) if name not in DecisionReply.model_fields]
        flaws += [f"{name}: a reply has no such part" for name in unknown[:MOST_FLAWS]]
    elif not found.flaw and not isinstance(found.value, dict):
        flaws.append("the reply is no JSON object")
    return tuple(flaws)
