"""What several executors offer, merged into one list. Pure.

A tool belongs to the executor that offered it first, for as long as that one offers it. Another that offers the same is
its stand-in: it gets the tool while the first is silent. Another that offers something else under the name is left out,
and told. An executor that is silent keeps its offers; one offer that cannot be used is left out alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field, JsonValue, ValidationError

from schemas.catalog import UNNAMED, ToolOffer
from schemas.fields import ToolName
from schemas.flaws import flaws_of

LONGEST_FLAW = 200

SchemaCheck = Callable[[Mapping[str, JsonValue]], str | None]


class NoCatalog(ValueError):
    """An answer that is no catalog at all; the text says why."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one executor offers. `flaws`: which of its offers cannot be used, and why."""

    executor: str
    offers: tuple[ToolOffer, ...]
    flaws: tuple[str, ...] = ()

    def and_also(self, other: "Told") -> "Told":
        return Told(self.executor, (*self.offers, *other.offers), (*self.flaws, *other.flaws))


@dataclass(frozen=True, slots=True)
class Merged:
    offers: Mapping[str, ToolOffer]
    conflicts: tuple[str, ...] = ()


class _Answer(BaseModel):
    executor: ToolName | None = None
    tools: tuple[JsonValue, ...] = Field(max_length=1000)


def read_answer(body: bytes, schema_flaw: SchemaCheck) -> Told:
    """The answer of one executor. Raises NoCatalog."""
    try:
        answer = _Answer.model_validate_json(body)
    except ValidationError as error:
        raise NoCatalog(f"an answer is no catalog of tools: {flaws_of(error)[:LONGEST_FLAW]}") from None
    return told_by(answer.executor or UNNAMED, answer.tools, schema_flaw)


def told_by(executor: str, tools: Iterable[JsonValue], schema_flaw: SchemaCheck) -> Told:
    offers, flaws = [], []
    for tool in tools:
        try:
            offers.append(_offer(tool, executor, schema_flaw))
        except ValueError as flaw:
            name = tool.get("name") if isinstance(tool, dict) else tool
            flaws.append(f"{executor} offers {str(name)[:64]!r}, which is left out: {flaw}")
    return Told(executor, tuple(offers), tuple(flaws))


def merge(told: Iterable[Told], before: Mapping[str, ToolOffer], present: frozenset[str]) -> Merged:
    """`told`: the newest of each executor, in the order of their first answers. `before`: what was merged so far.
    `present`: the executors that are not silent."""
    offered: defaultdict[str, list[ToolOffer]] = defaultdict(list)
    for offer in (offer for one in told for offer in one.offers):
        offered[offer.name].append(offer)
    chosen = {name: _chosen(offered[name], before.get(name), present) for name in sorted(offered)}
    return Merged(chosen, tuple(conflict for name in chosen for conflict in _conflicts(chosen[name], offered[name])))


def _chosen(offers: Sequence[ToolOffer], before: ToolOffer | None, present: frozenset[str]) -> ToolOffer:
    theirs = [offer for offer in offers if before is not None and offer.executor == before.executor]
    first = next((offer for offer in theirs if offer == before), (theirs or offers)[0])
    if first.executor in present:
        return first
    return next((offer for offer in offers if offer.executor in present and _is_same(offer, first)), first)


def _conflicts(chosen: ToolOffer, offers: Iterable[ToolOffer]) -> Iterator[str]:
    for executor in dict.fromkeys(offer.executor for offer in offers if not _is_same(offer, chosen)):
        yield (
            f"tool {chosen.name} of {executor} is left out: {chosen.executor} offered another tool of that name first "
            "and keeps it; rename one of them"
        )


def _is_same(one: ToolOffer, other: ToolOffer) -> bool:
    return one.model_copy(update={"executor": None}) == other.model_copy(update={"executor": None})


def _offer(tool: JsonValue, executor: str, schema_flaw: SchemaCheck) -> ToolOffer:
    """Raises ValueError, with what is wrong."""
    try:
        offer = ToolOffer.model_validate(tool)
    except ValidationError as error:
        raise ValueError(flaws_of(error)[:LONGEST_FLAW]) from None
    for command in offer.commands:
        if flaw := schema_flaw(command.input_schema):
            raise ValueError(f"the input_schema of command {command.name}: {flaw[:LONGEST_FLAW]}")
    return offer.model_copy(update={"executor": executor})
