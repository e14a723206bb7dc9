"""The person beside a run: signals and cancels it as the scenario's file says, over the bus."""

from collections.abc import Iterator

from agent_service.workbench.evaluation.played_bus import PlayedBus
from agent_service.workbench.evaluation.played_clock import PlayedClock
from agent_service.workbench.evaluation.scenario import PersonsSignal, Scenario
from schemas import subjects
from schemas.events import Cancel, Envelope, Signal


class PlayedPerson:
    """Does each thing once."""

    def __init__(self, scenario: Scenario, bus: PlayedBus, clock: PlayedClock) -> None:
        self._during = tuple(signal for signal in scenario.signals if signal.during_step)
        self._when_paused: Iterator[PersonsSignal] = iter([s for s in scenario.signals if s.when_paused])
        self._bus = bus
        self._clock = clock
        self._done = 0

    def sees_step(self, run_id: str, step: int) -> None:
        """Step `step` was asked for, for the first time."""
        for signal in self._during:
            if signal.during_step == step:
                self._act(run_id, signal)

    def sees_pause(self, run_id: str) -> None:
        signal = next(self._when_paused, None)
        if signal:
            self._act(run_id, signal)

    def _act(self, run_id: str, signal: PersonsSignal) -> None:
        self._done += 1
        if signal.kind == "cancel":
            cancel = Envelope[Cancel](type=subjects.CANCEL, payload=Cancel(run_id=run_id, reason=signal.message))
            self._bus.send(subjects.CANCEL, cancel.body(), after_s=signal.after_s)
            return
        at = self._clock.later(signal.after_s)
        payload = Signal(
            run_id=run_id,
            signal_id=f"s{self._done}",
            kind=signal.kind,
            message=signal.message,
            constraints=signal.constraints.constraints(at) if signal.constraints else None,
        )
        said = Envelope[Signal](type=subjects.SIGNAL, payload=payload)
        self._bus.send(subjects.SIGNAL, said.body(), after_s=signal.after_s)
