"""The history of a run: a fold of its entries into items. It grows entry by entry, and decides nothing."""

from collections.abc import Iterable, Iterator
from typing import Any

from agent_service.core.events import (
    CallReserved,
    CancelRequested,
    ModelReplied,
    ModelUnavailable,
    SignalReceived,
    StoodStill,
    WakeAccepted,
)
from agent_service.core.facts import (
    CallAsked,
    CallLost,
    CallPutOff,
    Decided,
    DecisionStatus,
    Ended,
    Fact,
    LimitsRaised,
    PersonAsked,
    Reopened,
    Resumed,
    Ruled,
    Slept,
    Stands,
)
from agent_service.core.phases import Phase, Plan, Verification
from agent_service.core.waiting import Approval, Question, Status, Stop
from agent_service.history import words
from agent_service.history.items import Failure, Item, Items, ItemStatus, as_tree
from agent_service.history.plain import instant
from agent_service.history.requests import Requests
from agent_service.run.journal import Record

_OF_DECISIONS: dict[DecisionStatus, ItemStatus] = {
    "ok": "ok",
    "unusable": "error",
    "refused": "refused",
    "ignored": "cancelled",
    "outrun": "cancelled",
}
_OF_ENDINGS: dict[Status, ItemStatus] = {Status.DONE: "ok", Status.CANCELLED: "cancelled"}
CALL, MODEL_WAIT, SLEEP, PAUSE = "call", "wait for the model", "wait by choice", "pause"


class History:
    """`seq` is the last entry that it has."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.seq = 0
        self.status = Status.QUEUED
        self.models: dict[str, None] = {}
        self._phase: Phase | None = None
        self._reopened = 0
        self._items = Items()
        self.requests = Requests(self._items)
        self.hear(records)

    def hear(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.entry.seq <= self.seq:  # another reader has folded it meanwhile
                continue
            self._happened(record)
            for fact in record.facts:
                self._led_to(record, fact)
            self.seq = record.entry.seq

    @property
    def items(self) -> tuple[Item, ...]:
        """All that has begun, in the order in which it began."""
        return tuple(item for item in self._items.by_id.values() if item.started_at)

    def tree(self) -> Iterator[Item]:
        """All that has begun, each followed by what is a part of it, else in the order in which it began."""
        return as_tree(self.items)

    def repeats(self, item: Item) -> bool:
        """Whether an attempt says no more than the step or task that it began and ended with, or ended alone."""
        above = self.item(item.parent or "")
        if above is None or item.kind != "attempt" or item.ended_in != above.ended_in:
            return False
        return bool(item.ended_in) or item.entry == above.entry

    def item(self, item_id: str) -> Item | None:
        return self._items.by_id.get(item_id)

    def ends(self, records: Iterable[Record]) -> Iterator[Item]:
        """Hears these; each item is as it was when it was closed."""
        for record in records:
            self.hear([record])
            closed, self._items.closed = self._items.closed, []
            yield from closed

    # What happened

    def _happened(self, record: Record) -> None:
        match record.event:
            case WakeAccepted() as event:
                text = words.from_people(event)
                self._items.begin("accepted", record, "accepted", kind="accepted", title="Accepted", text=text)
            case CallReserved() as event:
                self._reserved(record, event)
            case ModelReplied() as event:
                self._replied(record, event)
            case ModelUnavailable() as event:
                self._unavailable(record, event)
            case CancelRequested() as event:
                self._said(record, "Cancel", words.from_people(event))
            case SignalReceived() as event:
                self._signalled(record, event)
            case StoodStill() as event:
                self._said(record, "Goes on", words.went_on(event))

    def _reserved(self, record: Record, event: CallReserved) -> None:
        if record.first(PersonAsked) or record.first(Ended):  # it could break a budget, and is not made
            return
        if record.first(CallLost):
            lost = Failure(error_class="lost", message="its reply was lost with the process that made the call")
            self._items.close(CALL, record, "error", error=lost)
        self._still_ask(record, event.call)
        self._items.change(CALL, text=f"made with {words.reserved(event)} set aside", model=event.model)

    def _still_ask(self, record: Record, call: int) -> None:
        """An answer counts also where the call was put off."""
        if CALL not in self._items.open:
            self._ask(record, CallAsked(call=call, phase=self._phase or Phase.PLAN))

    def _replied(self, record: Record, reply: ModelReplied) -> None:
        self._still_ask(record, reply.call)
        self.models[reply.model] = None
        first, *along = record.all(Decided)
        for one in (first, *along):
            plan = words.decision_of(reply, one)
            if one.status == "ok" and isinstance(plan, Plan):
                self.requests.plan = plan
        status, told = _decided(record, reply, first)
        self._items.close(CALL, record, status, **told)
        for one in along:
            status, told = _decided(record, reply, one)
            self._items.begin(
                "plan",
                record,
                f"call:{reply.call}:plan",
                kind="phase",
                title=one.phase.capitalize(),
                phase=one.phase,
                call=reply.call,
                step=one.step,
                **told,
            )
            self._items.close("plan", record, status)

    def _unavailable(self, record: Record, event: ModelUnavailable) -> None:
        again = event.remedy in ("try_again", "shrink")
        error = Failure(error_class=event.error_class, message=event.message, retryable=again)
        self._still_ask(record, event.call)
        self._items.close(CALL, record, "error", text=words.unavailable(event), error=error)

    def _said(self, record: Record, title: str, text: str, **about: Any) -> None:
        item_id = f"person:{record.entry.seq}"
        self._items.begin("said", record, item_id, kind="person", title=title, text=text, about=about)
        self._items.close("said", record, "ok")

    def _signalled(self, record: Record, event: SignalReceived) -> None:
        signal, raised = event.signal, record.first(LimitsRaised)
        named = {"signal_id": signal.signal_id, "arguments_hash": signal.arguments_hash, "outcome": signal.outcome}
        limits = {"limits": tuple(words.limits(raised.limits))} if raised else {}
        self._said(record, words.SIGNALS[signal.kind], words.in_their_words(event), **named, **limits)

    # What it led to

    def _led_to(self, record: Record, fact: Fact) -> None:
        match fact:
            case CallAsked():
                self._ask(record, fact)
            case CallPutOff():
                self._put_off(record, fact)
            case Slept(until=until, why=why):
                told = {"title": "Waits", "text": why, "until": until, "about": {"kind": "time"}}
                self._items.begin(SLEEP, record, f"wait:{record.entry.seq}", kind="wait", **told)
            case PersonAsked():
                self._pause(record, fact)
            case Ended():
                self._end(record, fact)
            case Stands(status=status):
                self._stands(record, status)
            case Reopened() | Resumed():
                self._go_on(record, fact)
            case _:
                self.requests.led_to(record, fact)

    def _ask(self, record: Record, asked: CallAsked) -> None:
        self._phase = asked.phase
        self._over(record)
        step = self.requests.newest_step + (asked.phase is Phase.PLAN)
        self._items.begin(
            CALL,
            record,
            f"call:{asked.call}:{record.entry.seq}",
            kind="phase",
            title=asked.phase.capitalize(),
            text=words.asked_for(asked),
            phase=asked.phase,
            call=asked.call,
            step=step or None,
        )

    def _over(self, record: Record) -> None:
        self._items.close(MODEL_WAIT, record, "ok")
        self._items.close(SLEEP, record, "ok")

    def _put_off(self, record: Record, fact: CallPutOff) -> None:
        self._items.begin(
            MODEL_WAIT,
            record,
            f"wait:{record.entry.seq}",
            kind="wait",
            title="Tries again later",
            text=f"the model is asked again at {instant(fact.retry_at)}",
            phase=fact.phase,
            call=fact.call,
            until=fact.retry_at,
            about={"kind": "model_retry"},
        )

    def _pause(self, record: Record, fact: PersonAsked) -> None:
        if PAUSE in self._items.open and not isinstance(fact.ask, Stop):  # the same is asked for longer
            self._items.change(PAUSE, until=fact.expires_at)
            return
        self._items.close(CALL, record, "cancelled")
        self._items.close(SLEEP, record, "ok")
        title, text = _asked_of_a_person(fact)
        item_id, ask = f"pause:{record.entry.seq}", fact.ask
        about = {"kind": "person", "why": ask.ending_class} if isinstance(ask, Stop) else {"kind": ask.kind}
        told = {"title": title, "text": text, "until": fact.expires_at, "about": about}
        self._items.begin(PAUSE, record, item_id, kind="wait", **told)

    def _go_on(self, record: Record, fact: Resumed | Reopened) -> None:
        refused = any(ruled.verdict != "approved" for ruled in record.all(Ruled))
        self._items.close(PAUSE, record, "refused" if refused else "ok")
        if isinstance(fact, Reopened):
            self._reopened += 1
            self.requests.go_on(record, fact)

    def _stands(self, record: Record, status: Status) -> None:
        if status is not Status.QUEUED:
            self._items.close("accepted", record, "ok")
        elif record.first(Reopened):  # it ended before its turn had come, for which it waits once more
            self._items.go_on("accepted", record, "accepted")
        self.status = status

    def _end(self, record: Record, fact: Ended) -> None:
        self.requests.end(record)
        for what in tuple(self._items.open):
            self._items.close(what, record, "cancelled")
        status = _OF_ENDINGS.get(fact.status, "error")
        error = Failure(error_class=fact.ending_class, message=fact.reason) if status == "error" else None
        item_id = f"ending:{self._reopened}" if self._reopened else "ending"
        title, text = fact.status.capitalize(), fact.reason
        self._items.begin("ending", record, item_id, kind="ending", title=title, text=text, error=error)
        self._items.close("ending", record, status)


def _decided(record: Record, reply: ModelReplied, one: Decided) -> tuple[ItemStatus, dict[str, Any]]:
    decision, status = words.decision_of(reply, one), _OF_DECISIONS[one.status]
    if isinstance(decision, Verification) and not decision.holds and one.status == "ok":
        status = "refused"
    again = record.first(CallAsked) is not None
    error = Failure(error_class=one.error_class, message=one.why, retryable=again) if one.why else None
    text = words.decided(reply, one)
    return status, {"text": text, "error": error, "model": reply.model, "reply": reply, "decided": one}


def _asked_of_a_person(fact: PersonAsked) -> tuple[str, str]:
    match fact.ask:
        case Approval(proposal=proposal, reason=reason):
            return f"Asks for approval of {words.proposed(proposal)}", reason
        case Question(ask=ask):
            return "Asks a person", ask.question
        case Stop(ending_class=ending_class, reason=reason):
            return "Paused", f"{reason} ({ending_class})"
