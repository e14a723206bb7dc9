"""The history of a run: a fold of its entries into items. It grows entry by entry, and decides nothing."""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

from agent_service.core.events import (
    CallReserved,
    CancelRequested,
    ModelReplied,
    ModelUnavailable,
    RunStarted,
    SignalReceived,
    StoodStill,
    WakeAccepted,
)
from agent_service.core.facts import (
    CallAsked,
    CallLost,
    CallPutOff,
    ClaimsJudged,
    Decided,
    DecisionStatus,
    Ended,
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
from agent_service.history.items import Failure, Item, Items, ItemStatus, Thought, Tokens, as_tree
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


def rests(record: Record) -> bool:
    """True when the run ended, or waits for a person or an instant."""
    return any(isinstance(fact, Ended | PersonAsked | Slept) for fact in record.facts)


class History:
    """`seq` is the last entry that it has, `accepted` the first event, `started` the entry that froze the tools.
    `reopened` counts answers that set it going again.
    """

    accepted: WakeAccepted

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.seq = 0
        self.status = Status.QUEUED
        self.models: dict[str, None] = {}
        self.started: Record | None = None
        self.reopened = 0
        self._phase = Phase.PLAN
        self._items = Items()
        self._requests = Requests(self._items)
        self._handlers: dict[type[Any], Callable[[Any], object]] = self._requests.handlers | {
            WakeAccepted: self._accepted,
            RunStarted: self._started,
            CallReserved: self._reserved,
            ModelReplied: self._replied,
            ModelUnavailable: self._unavailable,
            CancelRequested: self._said,
            SignalReceived: self._signal,
            StoodStill: self._said,
            CallAsked: self._ask,
            CallPutOff: self._put_off,
            Slept: self._sleep,
            PersonAsked: self._pause,
            Ended: self._end,
            Stands: self._stands,
            Reopened: self._reopen,
            Resumed: self._go_on,
        }
        self.hear(records)

    def hear(self, records: Iterable[Record]) -> None:
        """Those that it has are left out: another reader has folded them meanwhile."""
        for record in (record for record in records if record.entry.seq > self.seq):
            self._items.record, self._items.closed = record, []
            for told in (record.event, *record.facts):
                if handler := self._handlers.get(type(told)):
                    handler(told)
            self.seq = record.entry.seq

    @property
    def items(self) -> tuple[Item, ...]:
        """All that has begun, in the order in which it began."""
        begun = [item for item in self._items.by_id.values() if item.has_begun]
        return tuple(sorted(begun, key=attrgetter("entry")))

    def tree(self) -> list[Item]:
        """All that has begun, each followed by what is a part of it, else in the order in which it began."""
        tree = as_tree(self.items)
        for item in tree:
            above = self._items.by_id.get(item.parent or "")
            if above and item.kind == "attempt":
                both = item.ended_in == above.ended_in
                item.repeats = both and (item.ended_in is not None or item.entry == above.entry)
        return tree

    def of_kind(self, kind: str, step: int | None = None) -> list[Item]:
        """In the order in which they were asked for."""
        return [item for item in self._items.by_id.values() if item.kind == kind and step in (None, item.step)]

    def item(self, item_id: str) -> Item | None:
        return self._items.by_id.get(item_id)

    def ends(self, records: Iterable[Record]) -> Iterator[Item]:
        """Hears these; each item is as it was when it was closed."""
        for record in records:
            self.hear([record])
            yield from self._items.closed

    # What happened

    def _accepted(self, event: WakeAccepted) -> None:
        self.accepted, self._began = event, event.at
        self._items.begin("accepted", kind="accepted", title="Accepted", text=_apart(words.of_event(event)))

    def _started(self, _: RunStarted) -> None:
        self.started = self._items.record

    def _reserved(self, event: CallReserved) -> None:
        record = self._items.record
        if record.first(PersonAsked) or record.first(Ended):  # it could break a budget, and is not made
            return
        if record.first(CallLost):
            lost = Failure(error_class="lost", message="its reply was lost with the process that made the call")
            self._items.close(CALL, "error", error=lost)
        call = self._open_call(event.call)
        call.text, call.model = f"made with {words.reserved(event)} set aside", event.model
        # the prompt is made before the reserve for it is committed
        call.about = {"asked_in": record.entry.seq - 1, "asked_at": record.at, "prompt_hash": event.prompt_hash}

    def _open_call(self, call: int) -> Item:
        """An answer counts also where the call was put off."""
        if CALL not in self._items.open:
            self._ask(CallAsked(call=call, phase=self._phase))
        return self._items.open[CALL]

    def _replied(self, reply: ModelReplied) -> None:
        step, usage = self._open_call(reply.call).step, reply.usage
        self.models[reply.model] = None
        tokens = Tokens(input=usage.input_tokens, output=usage.output_tokens, cache_read=usage.cache_read_tokens)
        told: dict[str, Any] = {"tokens": tokens, "cost_usd": usage.cost_usd}
        for one in self._items.record.all(Decided):
            thought = Thought(reply, one)
            if one.status == "ok" and isinstance(thought.decision, Plan):
                self._requests.plan = thought.decision
            if one.along:
                step, told = one.step, {}
                self._begin_phase(one.phase, f"call:{reply.call}:plan", reply.call, step)
            told |= {"thought": thought, "model": reply.model}
            if not one.along and (judged := self._items.record.first(ClaimsJudged)):
                self._items.open[CALL].about["refusals"] = judged.refusals
            self._items.close(CALL, **self._came(thought), **told)

    def _came(self, thought: Thought) -> dict[str, Any]:
        one, decision = thought.became, thought.decision
        doubted = isinstance(decision, Verification) and not decision.holds and one.status == "ok"
        status, why = "refused" if doubted else _OF_DECISIONS[one.status], "; ".join(map(str, one.why))
        again = self._items.record.first(CallAsked) is not None
        error = Failure(error_class=one.error_class, message=why, retryable=again) if why else None
        return {"status": status, "text": str(words.decided(thought)), "error": error}

    def _unavailable(self, event: ModelUnavailable) -> None:
        again = event.remedy in ("try_again", "shrink")
        error = Failure(error_class=event.error_class, message=str(event.message), retryable=again)
        self._open_call(event.call)
        self._items.close(CALL, "error", text=str(words.unavailable(event)), error=error)

    def _signal(self, event: SignalReceived) -> None:
        signal, raised = event.signal, self._items.record.first(LimitsRaised)
        named = {"signal_id": signal.signal_id, "arguments_hash": signal.arguments_hash, "outcome": signal.outcome}
        limits = {"limits": tuple(words.limits(raised.limits))} if raised else {}
        self._said(event, **named, **limits)

    def _said(self, event: CancelRequested | SignalReceived | StoodStill, **about: Any) -> None:
        item_id, said = f"person:{self._items.record.entry.seq}", words.of_event(event)
        self._items.begin(item_id, kind="person", title=said.bare.capitalize(), text=_apart(said), about=about)
        self._items.close(item_id, "ok")

    # What it led to

    def _ask(self, asked: CallAsked) -> None:
        self._phase = asked.phase
        self._items.close(MODEL_WAIT, "ok")
        self._items.close(SLEEP, "ok")
        step = self._requests.newest_step + (asked.phase is Phase.PLAN)
        item_id = f"call:{asked.call}:{self._items.record.entry.seq}"
        self._begin_phase(asked.phase, item_id, asked.call, step or None).text = str(words.asked_for(asked))

    def _begin_phase(self, phase: Phase, item_id: str, call: int, step: int | None) -> Item:
        about = {"asked_in": self._items.record.entry.seq, "asked_at": self._items.record.at}
        told: dict[str, Any] = {"title": phase.capitalize(), "phase": phase, "call": call, "step": step, "about": about}
        return self._items.begin(item_id, CALL, kind="phase", text="", **told)

    def _wait(self, what: str, title: str, text: str, kind: str, **told: Any) -> None:
        item_id = f"{'pause' if what == PAUSE else 'wait'}:{self._items.record.entry.seq}"
        about = {"kind": kind, **told.pop("about", {})}
        told |= {"kind": "wait", "status": "waiting", "title": title, "text": text, "about": about}
        self._items.begin(item_id, what, **told)

    def _put_off(self, fact: CallPutOff) -> None:
        text = f"the model is asked again at {instant(fact.retry_at)}"
        told = {"phase": fact.phase, "call": fact.call, "until": fact.retry_at}
        self._wait(MODEL_WAIT, "Tries again later", text, "model_retry", **told)

    def _sleep(self, fact: Slept) -> None:
        self._wait(SLEEP, "Waits", fact.why, "time", until=fact.until)

    def _pause(self, fact: PersonAsked) -> None:
        if PAUSE in self._items.open and not isinstance(fact.ask, Stop):  # the same is asked for longer
            self._items.open[PAUSE].until = fact.expires_at
            return
        self._items.close(CALL, "cancelled")
        self._items.close(SLEEP, "ok")
        match fact.ask:
            case Approval(proposal=proposal, reason=reason):
                title = f"Asks for approval of {words.proposed(proposal)}"
                self._wait(PAUSE, title, str(reason), "approval", until=fact.expires_at)
            case Question(ask=ask):
                self._wait(PAUSE, "Asks a person", ask.question, "question", until=fact.expires_at)
            case Stop(ending_class=why, reason=reason):
                self._wait(PAUSE, "Paused", f"{reason} ({why})", "person", until=fact.expires_at, about={"why": why})

    def _go_on(self, _: Resumed | Reopened) -> None:
        refused = any(ruled.verdict != "approved" for ruled in self._items.record.all(Ruled))
        self._items.close(PAUSE, "refused" if refused else "ok")

    def _reopen(self, fact: Reopened) -> None:
        self._go_on(fact)
        self.reopened, self._began = self.reopened + 1, self._items.record.at
        self._requests.go_on(fact)

    def _stands(self, fact: Stands) -> None:
        if fact.status is not Status.QUEUED:
            self._items.close("accepted", "ok")
        elif self._items.record.first(Reopened):  # it ended before its turn had come, for which it waits once more
            self._items.go_on("accepted")
        self.status = fact.status

    def _end(self, fact: Ended) -> None:
        self._requests.end()
        for what in tuple(self._items.open):
            self._items.close(what, "cancelled")
        status = _OF_ENDINGS.get(fact.status, "error")
        error = Failure(error_class=fact.ending_class, message=str(fact.reason)) if status == "error" else None
        item_id = f"ending:{self.reopened}" if self.reopened else "ending"
        title = fact.status.capitalize()
        self._items.begin(item_id, kind="ending", title=title, text=str(fact.reason), error=error, end=fact)
        self._items.close(item_id, status, opened_at=self._began)


def _apart(said: words.Said) -> str:
    """What it says, where its title is told apart."""
    return said.more.removeprefix(" by ").removeprefix(" from ").removeprefix(": ")
