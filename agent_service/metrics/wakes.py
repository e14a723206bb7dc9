"""Metrics of wakes, messages, results and dead letters. Error classes are a fixed list, since each is a series."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from agent_service.admission.granting import LimitRefused
from agent_service.errors import OverQuota, WakeConflict
from groundwork.service.errors import Failure, GiveUp, TryAgain
from groundwork.telemetry.metrics import Instruments, RepeatMetrics

NONE = ""
"""Prometheus treats an empty label as a missing one."""
OTHER = "other"

DENIED = frozenset({"not_allowed"})
TIMED_OUT = frozenset({"timeout", "expired"})
TOOL_ERRORS = frozenset(
    (
        *("artifact_changed", "bad_continuation", "bad_output", "budget", "configuration", "dependency", "expired"),
        *("in_doubt", "invalid_arguments", "invalid_result", "not_allowed", "not_approved", "not_found", "overruled"),
        *("rate_limit", "storage_full", "timeout", "tool_error", "transient", "unavailable"),
    )
)


def known_class(error_class: str) -> str:
    return error_class if error_class in TOOL_ERRORS else OTHER


def outcome_of(error: str) -> str:
    """`ok`, `error`, `timeout` or `denied`, by error class."""
    if error == NONE:
        return "ok"
    return "denied" if error in DENIED else "timeout" if error in TIMED_OUT else "error"


WAKE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
Transport = Literal["http", "nats", "stream"]
"""`POST /v1/wake`, a request to the micro service, or an `agentic.start` in the stream."""


class Waking:
    duplicate = False


class IncomingMetrics(RepeatMetrics):
    def __init__(self, instruments: Instruments) -> None:
        super().__init__(
            instruments,
            "What is done again: attempts of a step, model calls, messages, publishing",
            retries=[("turn", "try_again")],
            dedupe=["wake", "result_duplicate", "result_stale"],
        )
        text = "From a wake to its answer: the run is durable, or nothing is stored"
        of_a_wake = "agentic.wake.outcome", "agentic.transport", "error.type"
        self._wakes = instruments.histogram("agentic.wake.duration", text, *of_a_wake, bounds=WAKE_SECONDS)
        self.late = instruments.counter("agentic.results.late", "Tool results that came after the end of their run")
        text, of_a_message = "A message from the bus, with the whole turn that it causes", "messaging.destination.name"
        self._handled = instruments.histogram("messaging.process.duration", text, of_a_message, "error.type")
        self.rejected = instruments.counter("agentic.messages.rejected", "Messages that became dead letters")

    @contextmanager
    def wake(self, transport: Transport) -> Iterator[Waking]:
        began, waking = time.perf_counter(), Waking()
        outcome, error = "error", "internal"
        try:
            yield waking
            outcome, error = "duplicate" if waking.duplicate else "accepted", NONE
            if waking.duplicate:
                self.dedupe.add("wake")
        except Exception as raised:
            known = [outcome for kind, outcome in _OUTCOMES if isinstance(raised, kind)]
            refused_as = getattr(raised, "code", "")  # of an ApiError
            outcome, error = ("rejected", refused_as) if refused_as else (*known, (outcome, error))[0]
            raise
        finally:
            self._wakes.record(time.perf_counter() - began, outcome, transport, error)

    @contextmanager
    def handling(self, subject: str) -> Iterator[None]:
        """Counts a message from the bus."""
        began, error = time.perf_counter(), "internal"
        try:
            yield
            error = NONE
        except GiveUp:
            error = "refused"
            raise
        except Exception as raised:
            error = "try_again" if isinstance(raised, TryAgain) else "internal"
            self.retries.add("turn", error)
            raise
        finally:
            self._handled.record(time.perf_counter() - began, subject, error)


_OUTCOMES = (
    (WakeConflict, ("rejected", "wake_id_taken")),
    (LimitRefused, ("rejected", "not_granted")),
    (OverQuota, ("rejected", "over_quota")),
    (TryAgain, ("error", "try_again")),
    (Failure, ("error", "broken")),
)
