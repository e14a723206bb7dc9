"""What was seen of one run: its journal, what the agent said, and what the played gateway was asked. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from agent_service.core.events import Event
from agent_service.core.state import RunState
from agent_service.journal import Entry, rehearse
from agent_service.workbench.evaluation.played_bus import Said
from schemas import subjects
from schemas.catalog import ToolOffer
from schemas.events import Envelope, ToolRequest

ENDINGS = frozenset({subjects.COMPLETED, subjects.ESCALATED, subjects.FAILED, subjects.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One entry of the journal, and what it led to."""

    seq: int
    event: Event
    before: RunState | None
    state: RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A tool request that left the agent."""

    at: datetime
    route: str
    asked: ToolRequest


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One run, as it was seen. `broken`: why it could not be played to its end."""

    goal: str
    offers: tuple[ToolOffer, ...]
    state: RunState | None
    """As the store holds it."""
    entries: Sequence[Entry]
    said: Sequence[Said]
    artifacts: frozenset[str]
    broken: str = ""

    @cached_property
    def moments(self) -> tuple[Moment, ...]:
        """The journal, folded anew."""
        moments: list[Moment] = []
        for entry, transition in rehearse(self.entries):
            if transition.state is not None:
                before = moments[-1].state if moments else None
                event = entry.decoded()
                moments.append(Moment(seq=entry.seq, event=event, before=before, state=transition.state))
        return tuple(moments)

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        return tuple(self._requests())

    @property
    def endings(self) -> list[Said]:
        """The events that say how the run ended, or why it pauses."""
        return [said for said in self.said if said.subject in ENDINGS]

    def _requests(self) -> Iterator[Request]:
        for said in self.said:
            if said.subject.startswith(f"{subjects.TOOL_REQUEST}."):
                asked = Envelope[ToolRequest].model_validate_json(said.body).payload
                yield Request(at=said.at, route=said.subject.rsplit(".", 1)[1], asked=asked)
