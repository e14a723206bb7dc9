"""A Ductile in memory that speaks HTTP: the behaviour of the real one as it was measured, and its faults on request."""

from tests.ductile.fake.behaviours import (
    Behaviour,
    Outcome,
    answers,
    dies,
    fails,
    floods,
    held,
    in_turn,
    prints,
    skipped,
    succeeds_but_routing_fails,
    times_out,
)
from tests.ductile.fake.ductile import FakeDuctile
from tests.ductile.fake.faults import Faults

__all__ = [
    "Behaviour",
    "FakeDuctile",
    "Faults",
    "Outcome",
    "answers",
    "dies",
    "fails",
    "floods",
    "held",
    "in_turn",
    "prints",
    "skipped",
    "succeeds_but_routing_fails",
    "times_out",
]
