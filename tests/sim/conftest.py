"""Frees closed worlds early, because they are many, and skips the formatting of their logs."""

import gc
import logging
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.sim.courses import COURSES
from tests.sim.world import World


@pytest.fixture(scope="package", autouse=True)
def _quick() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    with closing(World(COURSES["plain run"])) as world:
        world.play()  # what is made when first used is there then: copies of this process have it
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()
    logging.disable(logging.NOTSET)
