"""Phases and model calls of a run as spans."""

from datetime import datetime

from agent_service.core.events import CallReserved, ModelReplied, ModelUnavailable
from agent_service.core.waiting import Asking
from agent_service.run.moments import Moment
from agent_service.telling.rulings import rulings
from agent_service.telling.spans import attributes
from agent_service.telling.spans.attributes import Content
from agent_service.telling.spans.tree import Open, Tree

OF_THE_MODEL = (CallReserved, ModelReplied, ModelUnavailable)
LOST = "lost"
"""The class of a call whose process died."""


class Thinking:
    def __init__(self, tree: Tree, content: Content | None) -> None:
        self._tree = tree
        self._content = content
        self._phase: Open | None = None
        self._call: Open | None = None

    def asked(self, moment: Moment, turn: Open | None) -> None:
        if moment.asked:
            self._phase = self._begun(moment.asked, moment, turn)

    def answered(self, moment: Moment, turn: Open | None) -> None:
        asking = moment.before and moment.before.asking
        if self._phase is None and asking and isinstance(moment.event, OF_THE_MODEL):
            self._phase = self._begun(asking, moment, turn)
        if self._phase:
            self._take(moment, self._phase, turn)

    def _take(self, moment: Moment, phase: Open, turn: Open | None) -> None:
        match moment.event:
            case CallReserved(model=model) if moment.after.reserve:
                self._end_call(moment, LOST)
                self._call = self._called(model, moment, phase, moment.entry.at)
            case ModelReplied() as reply:
                self._replied(moment, reply, phase, turn)
            case ModelUnavailable(error_class=why):
                self._call = self._call or self._called("", moment, phase, phase.at)
                self._end(moment, why)
            case _ if not _still_asks(moment):
                self._end(moment, moment.after.ending_class)

    def _begun(self, asking: Asking, moment: Moment, turn: Open | None) -> Open:
        phase = self._tree.open(f"{moment.entry.seq}:{asking.phase}", asking.phase.value, moment.entry.at, turn)
        phase.attributes |= attributes.phase(asking, moment.after)
        return phase

    def _called(self, model: str, moment: Moment, phase: Open, at: datetime) -> Open:
        name = f"chat {model}" if model else "chat"
        call = self._tree.open(f"{moment.entry.seq}:chat", name, at, phase, "client")
        call.attributes |= attributes.call(model)
        if moment.before and moment.before.asking:
            call.attributes |= attributes.prompted(moment.before, moment.before.asking, phase.at, self._content)
        return call

    def _replied(self, moment: Moment, reply: ModelReplied, phase: Open, turn: Open | None) -> None:
        self._call = self._call or self._called(reply.model, moment, phase, phase.at)
        self._call.attributes |= attributes.replied(reply, moment.after, self._content)
        first, *along = rulings(moment)
        phase.attributes |= attributes.ruled(first)
        self._end_call(moment)
        self._end(moment, first.error_class)
        for ruling in along:
            plan = self._tree.open(f"{moment.entry.seq}:along", ruling.phase.value, moment.entry.at, turn)
            plan.attributes |= attributes.along(ruling)
            self._tree.close(plan, moment.entry.at, ruling.error_class)

    def _end(self, moment: Moment, error: str | None) -> None:
        self._end_call(moment, error)
        if self._phase:
            self._tree.close(self._phase, moment.entry.at, error)
            self._phase = None

    def _end_call(self, moment: Moment, error: str | None = None) -> None:
        if self._call:
            self._tree.close(self._call, moment.entry.at, error)
            self._call = None


def _still_asks(moment: Moment) -> bool:
    before, calling = moment.before, moment.after.calling
    return calling is not None and before is not None and calling == before.asking
