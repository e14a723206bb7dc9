"""The history of a run: a fold of its entries into items, with one method per event or fact, named after it."""

from collections.abc import Iterable, Iterator
from typing import Any

from agent_service.core import events, facts
from agent_service.core.phases import Phase, Plan, Verification
from agent_service.core.waiting import Status, Stop
from agent_service.history import words
from agent_service.history.items import Item, ItemError, ItemStatus, Thought, handler_of
from agent_service.history.requests import Requests
from agent_service.run.journal import JournalRecord

_DECISION_STATUS: dict[facts.DecisionStatus, ItemStatus] = {
    "ok": "ok",
    "unusable": "error",
    "refused": "refused",
    "ignored": "cancelled",
    "outrun": "cancelled",
}
_ENDING_STATUS: dict[Status, ItemStatus] = {Status.DONE: "ok", Status.CANCELLED: "cancelled"}
CALL, MODEL_WAIT, SLEEP, PAUSE = "call", "wait for the model", "wait by choice", "pause"


class History(Requests):
    """`seq` is the newest entry, `accepted` the first event, `started` the entry that froze the tools.

    `reopened` counts the answers that reopened the run.
    """

    accepted: events.WakeAccepted

    def __init__(self, records: Iterable[JournalRecord] = ()) -> None:
        super().__init__()
        self.seq = 0
        self.status = Status.QUEUED
        self.models: dict[str, None] = {}
        self.started: JournalRecord | None = None
        self.reopened = 0
        self._phase = Phase.PLAN
        self.extend(records)

    def extend(self, records: Iterable[JournalRecord]) -> None:
        """Ignores entries up to `seq`, which another reader may have added meanwhile."""
        for record in (record for record in records if record.entry.seq > self.seq):
            self.record, self.closed, self.seq = record, [], record.entry.seq
            for change in (record.event, *record.facts):
                if handler := getattr(self, handler_of(type(change).__name__), None):
                    handler(change)

    def closed_by(self, records: Iterable[JournalRecord]) -> Iterator[Item]:
        """Adds the entries; yields each item as it was when it was closed."""
        for record in records:
            self.extend([record])
            yield from self.closed

    # Events

    def on_wake_accepted(self, event: events.WakeAccepted) -> None:
        self.accepted, self._began = event, event.at
        self.begin("accepted", kind="accepted", **words.title_and_text(event))

    def on_run_started(self, _: events.RunStarted) -> None:
        self.started = self.record

    def on_call_reserved(self, event: facts.CallReserved) -> None:
        record = self.record
        if record.first(facts.PersonAsked) or record.first(facts.RunEnded):  # no call, as it could break a budget
            return
        if record.first(facts.CallLost):
            lost = ItemError(error_class="lost", message="its reply was lost with the process that made the call")
            self.close(CALL, "error", error=lost)
        call = self._open_call(event.call)
        call.text, call.model = str(words.clause(event)), event.model
        asked_in = record.entry.seq - (event is record.event)  # the prompt is made before the reserve is committed
        call.about = {"asked_in": asked_in, "asked_at": event.at, "prompt_hash": event.prompt_hash}

    def _open_call(self, call: int) -> Item:
        """The open call; begins it again where it was postponed and answered all the same."""
        if CALL not in self.open:
            self.on_call_asked(facts.CallAsked(call=call, phase=self._phase))
        return self.open[CALL]

    def on_model_replied(self, reply: events.ModelReplied) -> None:
        self._open_call(reply.call)
        self.models[reply.model] = None
        for one in self.record.all(facts.Decided):
            thought = Thought(reply, one)
            if one.status == "ok" and isinstance(thought.decision, Plan):
                self.plan = thought.decision
            if one.along:
                self._begin_phase(one.phase, f"call:{reply.call}:plan", reply.call, one.step)
            elif judged := self.record.first(facts.ClaimsJudged):
                self.open[CALL].about["refusals"] = judged.refusals
            self._close_call(thought, None if one.along else reply.usage)

    def _close_call(self, thought: Thought, usage: events.ModelUsage | None) -> None:
        one, decision = thought.became, thought.decision
        doubted = isinstance(decision, Verification) and not decision.holds and one.status == "ok"
        status, why = "refused" if doubted else _DECISION_STATUS[one.status], "; ".join(map(str, one.why))
        again = self.record.first(facts.CallAsked) is not None
        error = ItemError(error_class=one.error_class, message=why, retryable=again) if why else None
        text = str(words.decision_clause(thought))
        self.close(CALL, status, usage=usage, thought=thought, model=thought.reply.model, text=text, error=error)

    def on_model_unavailable(self, event: events.ModelUnavailable) -> None:
        again = event.remedy in ("try_again", "shrink")
        error = ItemError(error_class=event.error_class, message=str(event.message), retryable=again)
        self._open_call(event.call)
        self.close(CALL, "error", text=str(words.clause(event)), error=error)

    def on_signal_received(self, event: events.SignalReceived) -> None:
        signal, raised = event.signal, self.record.first(facts.LimitsRaised)
        about = {name: getattr(signal, name) for name in ("signal_id", "arguments_hash", "outcome")}
        self._person_spoke(event, **about, **({"limits": tuple(words.limits(raised.limits))} if raised else {}))

    def _person_spoke(self, event: events.Event, **about: Any) -> None:
        item_id = f"person:{self.record.entry.seq}"
        self.begin(item_id, kind="person", about=about, **words.title_and_text(event))
        self.close(item_id, "ok")

    on_cancel_requested = on_stood_still = _person_spoke

    # Facts

    def on_call_asked(self, asked: facts.CallAsked) -> None:
        self._phase = asked.phase
        self.close(MODEL_WAIT, "ok")
        self.close(SLEEP, "ok")
        step = self.newest_step + (asked.phase is Phase.PLAN)
        item_id = f"call:{asked.call}:{self.record.entry.seq}"
        self._begin_phase(asked.phase, item_id, asked.call, step or None).text = str(words.clause(asked))

    def _begin_phase(self, phase: Phase, item_id: str, call: int, step: int | None) -> Item:
        about = {"asked_in": self.record.entry.seq, "asked_at": self.record.entry.at}
        title = phase.capitalize()
        return self.begin(item_id, CALL, kind="phase", title=title, phase=phase, call=call, step=step, about=about)

    def _wait(self, slot: str, fact: facts.Fact, kind: str, *, why: str = "", **fields: Any) -> None:
        item_id = f"{'pause' if slot == PAUSE else 'wait'}:{self.record.entry.seq}"
        fields |= {"about": {"kind": kind, "why": why}, **words.title_and_text(fact)}
        self.begin(item_id, slot, kind="wait", status="waiting", **fields)

    def on_call_postponed(self, fact: facts.CallPostponed) -> None:
        self._wait(MODEL_WAIT, fact, "model_retry", phase=fact.phase, call=fact.call, until=fact.retry_at)

    def on_slept(self, fact: facts.Slept) -> None:
        self._wait(SLEEP, fact, "time", until=fact.until)

    def on_person_asked(self, fact: facts.PersonAsked) -> None:
        ask = fact.ask
        self.close(CALL, "cancelled")
        self.close(SLEEP, "ok")
        kind, why = ("person", ask.ending_class) if isinstance(ask, Stop) else (ask.kind, "")
        self._wait(PAUSE, fact, kind, why=why, until=fact.expires_at)

    def on_run_reopened(self, fact: facts.RunReopened) -> None:
        self.reopened, self._began = self.reopened + 1, self.record.entry.at
        self._reopen_requests(fact)

    def on_run_standing(self, fact: facts.RunStanding) -> None:
        if fact.status is not Status.QUEUED:
            self.close("accepted", "ok")
        elif self.record.first(facts.RunReopened):  # it ended while queued, and is queued again
            self.reopen("accepted")
        if fact.status is Status.RUNNING:
            refused = any(ruled.verdict != "approved" for ruled in self.record.all(facts.Ruled))
            self.close(PAUSE, "refused" if refused else "ok")
        self.status = fact.status

    def on_run_ended(self, fact: facts.RunEnded) -> None:
        self._fail_answered()
        for slot in tuple(self.open):
            self.close(slot, "cancelled")
        status = _ENDING_STATUS.get(fact.status, "error")
        error = ItemError(error_class=fact.ending_class, message=str(fact.reason)) if status == "error" else None
        item_id = f"ending:{self.reopened}" if self.reopened else "ending"
        title = fact.status.capitalize()
        self.begin(item_id, kind="ending", title=title, text=str(fact.reason), error=error, end=fact)
        self.close(item_id, status, opened_at=self._began)
