"""Worlds drawn from seeds: several courses at once, while the bus, the Ductile, the model and the processes misbehave.

A seed is one schedule: `python -m tests.sim SEED` plays it again and prints what happened.
"""

import os

import pytest

from tests.sim.drawn import drawn

FIRST, NUMBER = int(os.environ.get("SIM_FROM", "1")), int(os.environ.get("SIM_SEEDS", "20"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + NUMBER))
def test_no_rule_is_broken_and_every_run_ends_once_the_faults_are_over(seed: int) -> None:
    with drawn(seed) as world:
        world.play_on()
