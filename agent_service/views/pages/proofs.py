"""The proofs of a run: wanted by its framing, claimed, and accepted."""

from collections.abc import Iterator

from agent_service.core.facts import ClaimsJudged
from agent_service.core.phases import Framing, Met, Reflection
from agent_service.core.proof import in_words
from agent_service.core.state import DoneItem
from agent_service.run.journal import Record
from agent_service.views.pages.markdown import bullets, code, inline, numbered, tick

MAX_QUOTE = 200


def items_to_prove(framing: Framing) -> str:
    if not framing.proofs:
        return numbered(framing.definition_of_done)
    items = zip(framing.definition_of_done, framing.proofs, strict=False)
    lines = (f"{inline(text)} (shown by {inline(in_words(proof))})" for text, proof in items)
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))


def checked(item: DoneItem) -> str:
    if item.done:
        quotes = item.quotes or ("",) * len(item.evidence)
        shown = ", ".join(map(_by, item.evidence, quotes))
        return tick(True, f"{item.id}: {inline(item.text)} (evidence: {shown})")
    needs = f" (to be shown by {inline(in_words(item.proof))})" if item.proof else ""
    return tick(False, f"{item.id}: {inline(item.text)}{needs}")


def claims(record: Record, reflection: Reflection) -> Iterator[str]:
    ruled = record.first(ClaimsJudged) or ClaimsJudged()
    accepted = {(claim.item, claim.quote): claim.evidence for claim in ruled.accepted}
    for claim in reflection.met:
        yield _claim(claim, accepted.get((claim.item, claim.quote), ""))
    for unmet in reflection.unmet:
        why = f": {inline(unmet.reason)}" if unmet.reason else ""
        yield tick(False, f"{inline(unmet.item, 40)} is not met any more{why}")
    if ruled.refusals:
        yield bullets(f"Not accepted: {inline(why)}" for why in ruled.refusals)


def _claim(claim: Met, accepted: str) -> str:
    by = "by" if accepted else "claimed, and not accepted, by"
    return tick(bool(accepted), f"{inline(claim.item, 40)} is met, {by} {_by(accepted or claim.evidence, claim.quote)}")


def _by(evidence: str, quote: str) -> str:
    return f'{code(evidence)}, "{inline(quote, MAX_QUOTE)}"' if quote else code(evidence)
