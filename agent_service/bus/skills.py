"""The catalog of tools: offers of all executors on the bus, merged, and limited to the tools that the agent allows.

A tool belongs to the executor that offered it first. Another executor with the same offer replaces it while it is
silent; a different offer under the same name is left out and reported. A silent executor keeps its offers.

Executors are asked at most every few seconds. After the first answer the others have a moment; later answers still
count, because the inbox stays open.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from nats.aio.msg import Msg
from pydantic import Field, JsonValue, ValidationError

from agent_service.settings import AgentSettings
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from groundwork.service.machine import monotonic, set_within
from schemas import subjects
from schemas.argument_schemas import schema_flaw
from schemas.catalog import UNNAMED, Catalog, ToolCommand, ToolOffer
from schemas.fields import ToolName, Wire, validation_flaws
from schemas.values import dataclass, replace

LONGEST_FLAW = 200
UNREADABLE = ""
"""Executor name for answers that are not a catalog."""


@dataclass(frozen=True, slots=True)
class ExecutorOffers:
    """Usable offers of one executor, and a flaw for each of the others. `answered_in`: number of the question."""

    executor: str
    offers: tuple[ToolOffer, ...]
    flaws: tuple[str, ...] = ()
    answered_in: int = 0


class _CatalogAnswer(Wire):
    executor: ToolName | None = None
    tools: tuple[JsonValue, ...] = Field(max_length=1000)


def read_answer(body: bytes) -> ExecutorOffers:
    try:
        answer = _CatalogAnswer.model_validate_json(body)
    except ValidationError as error:
        return ExecutorOffers(
            UNREADABLE, (), (f"an answer is not a catalog of tools: {validation_flaws(error)[:LONGEST_FLAW]}",)
        )
    return offers_of(answer.executor or UNNAMED, answer.tools)


def offers_of(executor: str, tools: Iterable[JsonValue]) -> ExecutorOffers:
    offers, flaws = [], []
    for tool in tools:
        try:
            offers.append(_offer(tool, executor))
        except ValueError as flaw:
            name = tool.get("name") if isinstance(tool, dict) else tool
            flaws.append(f"{executor} offers {str(name)[:64]!r}, which is left out: {flaw}")
    return ExecutorOffers(executor, tuple(offers), tuple(flaws))


def merge(
    answers: Iterable[ExecutorOffers], before: Mapping[str, ToolOffer], present: frozenset[str]
) -> tuple[dict[str, ToolOffer], tuple[str, ...]]:
    """Offers by name, and the conflicts.

    `answers` are the newest of each executor, in order of their first answers; `before` is the merge so far, `present`
    the executors that are not silent.
    """
    offered: defaultdict[str, list[ToolOffer]] = defaultdict(list)
    for offer in (offer for answer in answers for offer in answer.offers):
        offered[offer.name].append(offer)
    chosen = {name: _chosen(offered[name], before.get(name), present) for name in sorted(offered)}
    return chosen, tuple(conflict for name in chosen for conflict in _conflicts(chosen[name], offered[name]))


def _chosen(offers: Sequence[ToolOffer], before: ToolOffer | None, present: frozenset[str]) -> ToolOffer:
    theirs = [offer for offer in offers if before is not None and offer.executor == before.executor]
    first = next((offer for offer in theirs if offer == before), (theirs or offers)[0])
    if first.executor in present:
        return first
    return next((offer for offer in offers if offer.executor in present and _is_same(offer, first)), first)


def _conflicts(chosen: ToolOffer, offers: Iterable[ToolOffer]) -> Iterator[str]:
    for executor in dict.fromkeys(offer.executor for offer in offers if not _is_same(offer, chosen)):
        mend = "give all processes of that executor the same tools" if executor == chosen.executor else "rename one"
        yield (
            f"tool {chosen.name} of {executor} is left out: {chosen.executor} offered another tool of that name first "
            f"and keeps it; {mend}"
        )


def _is_same(one: ToolOffer, other: ToolOffer) -> bool:
    return one.model_copy(update={"executor": None}) == other.model_copy(update={"executor": None})


def _offer(tool: JsonValue, executor: str) -> ToolOffer:
    try:
        offer = ToolOffer.model_validate(tool)
    except ValidationError as error:
        raise ValueError(validation_flaws(error)[:LONGEST_FLAW]) from None
    for command in offer.commands:
        if flaw := schema_flaw(command.input_schema):
            raise ValueError(f"the input_schema of command {command.name}: {flaw[:LONGEST_FLAW]}")
    return offer.model_copy(update={"executor": executor})


FRESH_S = 5.0
ANSWER_WITHIN_S = 2.0
NEW_WITHIN_S = 0.1
KNOWN_WITHIN_S = 0.25
NO_EXECUTOR = (
    "no executor tells its tools: is ductile-gateway running? Tools of an executor that answers no catalog have to be "
    "declared in agent.tools.declared (docs/BUS.md, Executors)"
)
UNPROVEN = (
    "is left out: its results would not bring back what each request is proved with (agent.tools.require_capability)"
)
ALIKE = 0.75
log = logging.getLogger(__name__)


class NatsSkills:
    def __init__(self, link: NatsLink, settings: AgentSettings, *, fresh_s: float = FRESH_S) -> None:
        """The agent's own offers hide others of that name."""
        self._link = link
        self._settings, self._rules = settings, settings.tool_rules
        self._fresh_s = fresh_s
        self._own = {offer.name: offer for offer in settings.own_tools()}
        self._declared = offers_of(UNNAMED, self._rules.declared)
        self._answers: dict[str, ExecutorOffers] = {}
        self._offers: dict[str, ToolOffer] = {}
        self._catalog = Catalog(tools=())
        self._asked_at = float("-inf")
        self._round = self._closed_round = 0
        self._asking = asyncio.Lock()
        self._answered = asyncio.Event()
        self._inbox = ""
        self.problems: tuple[str, ...] = ()

    async def catalog(self) -> Catalog:
        if self._is_stale():
            gathered = self._closed_round
            async with self._asking:
                if self._is_stale() and self._closed_round == gathered:  # no other task has asked meanwhile
                    await self._ask()
        if not self._offers and (self.problems or not self._answers):
            raise TryAgain("; ".join(self.problems) or NO_EXECUTOR)
        return self._catalog

    def present(self) -> frozenset[str]:
        answered = (name for name, answer in self._answers.items() if answer.answered_in >= self._closed_round)
        others = (*self._own.values(), *self._declared.offers)
        return frozenset((*answered, *(offer.executor for offer in others if offer.executor)))

    @property
    def all_problems(self) -> tuple[str, ...]:
        every = (offer.name for answer in self._answers.values() for offer in answer.offers)
        named = unoffered(self._settings, self._catalog.tools, [*every]) if self._answers else ()
        return (*self.problems, *(f"{setting}, which no executor offers" for setting in named))

    def _is_stale(self) -> bool:
        return monotonic() - self._asked_at > self._fresh_s

    async def _ask(self) -> None:
        self._answers.pop(UNREADABLE, None)
        self._answered.clear()
        if not self._inbox:
            inbox = self._link.client.new_inbox()
            await self._link.subscribe(inbox, self._on_answer)
            self._inbox = inbox
        known, self._round = set(self._answers), self._round + 1
        first_at, left = 0.0, ANSWER_WITHIN_S
        if await self._link.send(subjects.CATALOG, b"", reply=self._inbox):
            while left > 0 and await set_within(self._answered, left):
                self._answered.clear()
                first_at = first_at or monotonic()
                is_missing = not known or any(self._answers[name].answered_in < self._round for name in known)
                left = first_at + (KNOWN_WITHIN_S if is_missing else NEW_WITHIN_S) - monotonic()
        self._closed_round = self._round
        self._merge()
        if self._answers or self._declared.offers:
            self._asked_at = monotonic()

    async def _on_answer(self, message: Msg) -> None:
        if (message.headers or {}).get("Status") is None:  # not the server's "no responders"
            answer = replace(read_answer(message.data), answered_in=self._round)
            before = self._answers.get(answer.executor)
            if before and before.answered_in == self._round:  # one executor may answer in several messages
                offers, flaws = (*before.offers, *answer.offers), (*before.flaws, *answer.flaws)
                answer = replace(before, offers=offers, flaws=flaws)
            self._answers[answer.executor] = answer
            if self._closed_round == self._round:
                self._merge()
        self._answered.set()

    def _usable(self, answer: ExecutorOffers) -> ExecutorOffers:
        allowed = tuple(filter(self._allows, answer.offers))
        unproven = tuple(offer for offer in allowed if self._rules.require_capability and not offer.echoes_capability)
        flaws = (*answer.flaws, *(f"{offer.name} of {answer.executor} {UNPROVEN}" for offer in unproven))
        return ExecutorOffers(answer.executor, tuple(offer for offer in allowed if offer not in unproven), flaws)

    def _allows(self, tool: ToolOffer) -> bool:
        calls_agents = tool.route in subjects.OUR_OWN_ROUTES
        may = not calls_agents or (tool.route == subjects.WAKE_ROUTE and bool(self._own))
        return may and (self._rules.only is None or tool.name in self._rules.only)

    def _merge(self) -> None:
        every = tuple(map(self._usable, (self._declared, *self._answers.values())))
        self._offers, conflicts = merge(every, self._offers, self.present())
        flaws = (flaw for answer in every for flaw in answer.flaws)
        hidden = (f"{name}: the agent offers its own tool of this name" for name in self._offers if name in self._own)
        problems = tuple(dict.fromkeys((*flaws, *conflicts, *hidden)))
        for problem in set(problems).difference(self.problems):
            log.warning("a tool offer is left out", extra={"why": problem})
        self.problems = problems
        self._catalog = Catalog(
            tools=tuple(ruled(self._settings, one) for one in {**self._offers, **self._own}.values())
        )


# The operator's rules


def ruled(settings: AgentSettings, offer: ToolOffer) -> ToolOffer:
    """The offer under `approve`, `untrusted` and `trusted`; a rule of a command goes before that of its tool."""
    changed: dict[str, object] = {}
    commands = tuple(_ruled(settings, offer.name, command) for command in offer.commands)
    if commands != offer.commands:
        changed["commands"] = commands
    if offer.name in (*settings.untrusted, *settings.trusted):
        changed["output"] = "untrusted" if offer.name in settings.untrusted else "trusted"
    return offer.model_copy(update=changed) if changed else offer


def _ruled(settings: AgentSettings, tool: str, command: ToolCommand) -> ToolCommand:
    name = f"{tool}.{command.name}"
    rule = settings.approve.get(name) or settings.approve.get(tool)
    changed: dict[str, object] = {"approve": rule} if rule else {}
    if tool in settings.untrusted:
        changed |= {"output": "untrusted"} if command.output else {}  # an executor does not overrule it
    elif name in settings.trusted:
        changed["output"] = "trusted"
    return command.model_copy(update=changed) if changed else command


def undeclared(offers: Iterable[ToolOffer]) -> tuple[str, ...]:
    """Tools whose results are untrusted only because their output is not declared."""
    silent = (offer for offer in offers if offer.output is None)
    return tuple(sorted(offer.name for offer in silent if any(command.output is None for command in offer.commands)))


def unoffered(settings: AgentSettings, offers: Collection[ToolOffer], offered: Collection[str]) -> tuple[str, ...]:
    """Settings that name tools without an offer, most likely misspelt. `offered`: offered names, allowed or not, for
    suggestions."""
    usable, allowed = {offer.name for offer in offers}, set(settings.tool_rules.only or ())
    left = sorted({*offered, *usable} - allowed)
    near = {name: get_close_matches(name, left, n=1, cutoff=ALIKE) for name in sorted(allowed - usable)}
    commands = {f"{offer.name}.{command.name}" for offer in offers for command in offer.commands}
    missing = {
        "agent.tools": [f"{name} (did you mean {found[0]}?)" if found else name for name, found in near.items()],
        "agent.approve, agent.untrusted or agent.trusted": sorted(
            {*settings.approve, *settings.untrusted, *settings.trusted} - commands - usable
        ),
    }
    return tuple(f"{setting} names {', '.join(names)}" for setting, names in missing.items() if names)
