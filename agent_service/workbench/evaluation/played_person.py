"""The people of a scenario, played: what they say to a run, and when."""

from collections.abc import Iterator

from agent_service.core.state import RunState
from agent_service.core.waiting import Approval, Status
from agent_service.workbench.evaluation.played import PlayedBus, PlayedClock
from agent_service.workbench.evaluation.scenario import PersonsSignal, Scenario
from schemas import subjects
from schemas.events import Cancel, Envelope, Signal


class PlayedPerson:
    """Signals and cancels runs as the file says, over the bus, once each. Place 0 is the scenario's run."""

    def __init__(self, scenario: Scenario, bus: PlayedBus, clock: PlayedClock) -> None:
        self._signals = scenario.signals
        self._when_paused = [signal for signal in scenario.signals if signal.when_paused]
        self._when_escalated = [signal for signal in scenario.signals if signal.when_escalated]
        self._bus = bus
        self._clock = clock
        self._done = 0

    def sees_step(self, state: RunState, step: int, place: int) -> None:
        for signal in self._signals:
            if signal.during_step == step and (signal.child or 0) == place:
                self._bus.send(*self._said(state, signal), after_s=signal.after_s)

    def sees_rest(self, state: RunState, place: int) -> None:
        left = self._when_escalated if state.status is Status.ESCALATED else self._when_paused
        signal = next((signal for signal in left if (signal.child or 0) == place), None)
        if signal:
            left.remove(signal)
            self._bus.send(*self._said(state, signal), after_s=signal.after_s)

    def during_call(self, state: RunState, call: int, place: int) -> Iterator[tuple[str, bytes]]:
        for signal in self._signals:
            if signal.during_call == call and (signal.child or 0) == place:
                yield self._said(state, signal)

    def _said(self, state: RunState, signal: PersonsSignal) -> tuple[str, bytes]:
        self._done += 1
        if signal.kind == "cancel":
            cancel = Cancel(run_id=state.run_id, reason=signal.message)
            return subjects.CANCEL, Envelope[Cancel](type=subjects.CANCEL, payload=cancel).body()
        at = self._clock.later(signal.after_s)
        asked = state.ask.subject_hash if isinstance(state.ask, Approval) else None
        payload = Signal(
            run_id=state.run_id,
            signal_id=f"s{self._done}",
            kind=signal.kind,
            message=signal.message,
            constraints=signal.constraints.constraints(at) if signal.constraints else None,
            arguments_hash=signal.arguments_hash or asked,
            outcome=signal.outcome,
        )
        return subjects.SIGNAL, Envelope[Signal](type=subjects.SIGNAL, payload=payload).body()
