"""The probe plugin as a behaviour: does what its payload says, as tests/ductile/probe does under a real Ductile."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.ductile.fake.behaviours import Behaviour, Outcome, answers, fails, floods, prints, times_out
from tests.ductile.under_test import Execution

PATIENCE_SECONDS = 30


def probe(execution: Execution) -> Outcome:
    """`do` of the payload names what happens; without it the payload comes back."""
    return _DEEDS.get(execution.payload.get("do", "answer"), _shown)(execution.payload)(execution)


def _shown(payload: Mapping[str, Any]) -> Behaviour:
    return answers("done", output={"payload": dict(payload)})


def _emitting(payload: Mapping[str, Any]) -> Behaviour:
    return answers("done", events=[{"type": "probe.emitted", "payload": payload["emitted"]}])


def _held(payload: Mapping[str, Any]) -> Behaviour:
    until = time.monotonic() + PATIENCE_SECONDS
    while not Path(payload["until"]).exists() and time.monotonic() < until:
        time.sleep(0.005)
    return _shown(payload)


_DEEDS: Mapping[str, Callable[[Mapping[str, Any]], Behaviour]] = {
    "answer": _shown,
    "emit": _emitting,
    "flood": lambda _: floods(),
    "garbage": lambda _: prints(b"this is no JSON", stderr="a word on stderr"),
    "hang": lambda _: times_out(),
    "hold": _held,
    "insist": lambda _: fails("as you wish", retry=True),
    "quit": lambda _: fails("as you wish", exits=78),
    "refuse": lambda _: fails("as you wish", retry=False, error_class="invalid_arguments"),
    "say": lambda payload: answers(**{"result": "done"} | payload["says"]),
    "silence": lambda _: prints(b""),
    "stumble": lambda _: fails("as you wish"),
}
