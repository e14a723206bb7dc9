"""Worlds drawn from seeds: concurrent courses while bus, Ductile, model and processes are faulty.

A seed is one schedule: `python -m tests.sim SEED` replays and prints it.
"""

import os

import pytest

from tests.sim.random_world import drawn

FIRST, NUMBER = int(os.environ.get("SIM_FROM", "1")), int(os.environ.get("SIM_SEEDS", "20"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + NUMBER))
def test_no_rule_is_broken_and_every_run_ends_once_the_faults_are_over(seed: int) -> None:
    with drawn(seed) as world:
        world.play_on()
