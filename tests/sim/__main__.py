"""Replays one schedule and prints the record: `python -m tests.sim SEED [--course NAME] [--dies-at N]`.

`--bugs` plays every sown bug instead and prints the rule that it breaks.
"""

import argparse
import json
import logging
import sys
from collections.abc import Callable
from contextlib import closing

from tests.sim.courses import COURSES
from tests.sim.random_world import drawn
from tests.sim.test_bugs import BUGS, found
from tests.sim.world import World


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument(
        "--course", choices=COURSES, help="one course, without faults; else a world that the seed draws"
    )
    parser.add_argument("--dies-at", type=int, help="the number of the effect before which its process dies")
    parser.add_argument("--bugs", action="store_true", help="which rule each sown bug breaks, after how many schedules")
    told = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if told.bugs:
        for bug in BUGS:
            schedules, rule = found(bug)
            sys.stdout.write(f"{bug.what} ({bug.course}) | {rule} | {schedules}\n")
    elif told.course:
        with closing(World(COURSES[told.course], told.seed, dies_at=told.dies_at)) as world:
            played(world, world.play)
    else:
        with drawn(told.seed) as world:
            played(world, world.play_on)


def played(world: World, play: Callable[[], None]) -> None:
    flaw = ""
    try:
        play()
    except AssertionError as error:
        flaw = f"{type(error).__name__}: {error}\n"
    for message in world.record.messages:
        sys.stdout.write(f"{message.at:8.3f} {message.subject} {json.dumps(message.payload)[:200]}\n")
    deaths = ", ".join(world.record.deaths) or "none"
    sys.stdout.write(f"jobs: {len(world.record.ran)}, paid prompts: {len(world.record.paid)}, deaths: {deaths}\n{flaw}")


if __name__ == "__main__":
    main()
