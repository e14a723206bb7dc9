"""A world drawn from a seed: its courses and its faults."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from tests.sim.courses import mixed
from tests.sim.faults import Faults
from tests.sim.world import World

MIXED = (
    "plain run",
    "retries",
    "several reads",
    "approval",
    "question",
    "reopening",
    "continuation",
    "child",
    "two runs",
)
"""Courses whose ends do not depend on what happens beside them."""
FAULTS_LAST_S = 8.0


@contextmanager
def drawn(seed: int) -> Iterator[World]:
    draw = Random(seed)  # noqa: S311 - the same seed gives the same world
    course = mixed(sorted(draw.sample(MIXED, k=3)))
    several = replace(course, agents=draw.choice((1, 1, 2)), gateways=draw.choice((1, 1, 2)))
    world = World(several, seed)
    try:
        Faults(world, until_s=FAULTS_LAST_S)
        yield world
    except BaseException as error:
        error.add_note(f"again: python -m tests.sim {seed}")
        raise
    finally:
        world.close()
