"""A world drawn from a seed: its courses, and faults until a given time; then everything must come to an end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from schemas import subjects
from tests.sim.courses import mixed
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
    "reframe",
    "callback",
)
"""Courses whose endings do not depend on concurrent ones."""
FAULTS_LAST_S = 8.0
FORGETFUL = (subjects.STREAM_REQUESTS, subjects.STREAM_PROGRESS)
"""Unsynced streams, whose newest messages a server may forget when it loses power."""
MOST_DEATHS = 6
FAULTS = {
    "acknowledgement lost": 0.1,  # a message is stored, and its publisher does not hear so
    "message not stored": 0.05,  # as during an election
    "settling unheard": 0.2,  # a consumer's acknowledgement is lost: the message is delivered again
    "message doubled": 0.3,  # delivered again at once
    "message out of order": 0.3,  # delivered after later ones
    "start unheard": 0.3,  # a job is started, and the connection breaks before its answer
    "job not started": 0.3,  # the connection breaks before a start is read
    "Ductile busy": 0.2,  # any request gets 503
    "job forgotten": 0.1,  # a finished one, except in lists
    "model unavailable": 0.3,  # 503, before the call is paid
    "reply lost": 0.2,  # it is paid, and the connection breaks before it arrives
    "reply garbled": 0.2,  # no JSON
}
"""Each with the largest probability that a world may have."""


class Faults:
    """`until_s` is the virtual second at which faults end."""

    def __init__(self, world: World, *, until_s: float) -> None:
        self._world = world
        self._draw = world.scheduler.random
        self._deaths = 0
        world.record.lossless = False
        world.scheduler.faults |= {name: self._draw.uniform(0, most) for name, most in FAULTS.items() if self._occurs()}
        world.boundary.dies = self._dies
        for _ in range(self._draw.randrange(4)):
            event = self._draw.choice(self._events())
            world.scheduler.after(self._draw.uniform(0.5, until_s), event)
        world.scheduler.after(until_s, self.stop)

    def stop(self) -> None:
        world = self._world
        world.boundary.dies = lambda _: False
        world.scheduler.faults.clear()
        world.bus.jetstream.full = ""
        for disk in world.services.disks.values():
            disk.full = False

    def _occurs(self) -> bool:
        """Mostly not, so that each world has few kinds of faults."""
        return self._draw.random() < 0.3

    def _dies(self, process: object) -> bool:
        del process
        dies = self._deaths < MOST_DEATHS and self._draw.random() < 0.008
        self._deaths += dies
        return dies

    def _events(self) -> list[Callable[[], None]]:
        world, scheduler = self._world, self._world.scheduler
        return [
            lambda: world.bus.restart(away_s=self._draw.uniform(0.1, 3)),
            lambda: world.ductile.goes_away(self._draw.uniform(0.1, 5)),
            lambda: world.network.cut(lambda _: self._draw.random() < 0.5),
            self._power_of_the_bus,
            self._full_disk,
            self._full_stream,
            lambda: setattr(scheduler, "skew", self._draw.uniform(-5, 5)),
        ]

    def _power_of_the_bus(self) -> None:
        self._world.bus.restart(away_s=1)
        for name in FORGETFUL:
            self._world.bus.jetstream.streams[name].forget(self._draw.randrange(4))

    def _full_disk(self) -> None:
        disk = self._draw.choice(list(self._world.services.disks.values()))
        disk.full = True
        self._world.scheduler.after(self._draw.uniform(0.1, 3), lambda: setattr(disk, "full", False))

    def _full_stream(self) -> None:
        jetstream = self._world.bus.jetstream
        jetstream.full = self._draw.choice(list(jetstream.streams))
        self._world.scheduler.after(self._draw.uniform(0.1, 3), lambda: setattr(jetstream, "full", ""))


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
