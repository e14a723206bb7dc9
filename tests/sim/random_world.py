"""A world drawn from a seed: its courses, and faults until a given time; then everything must come to an end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from schemas import subjects
from tests.sim.courses import mixed
from tests.sim.servers import ductile, jetstream, model
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


class Faults:
    """`until_s` is the virtual second at which faults end."""

    def __init__(self, world: World, *, until_s: float) -> None:
        self._world = world
        self._draw = world.scheduler.random
        self._deaths = 0
        world.record.lossless = False
        self._bus()
        self._ductile()
        self._model()
        world.kills.drawn = self._dies
        for _ in range(self._draw.randrange(4)):
            event = self._draw.choice(self._events())
            world.scheduler.after(self._draw.uniform(0.5, until_s), event)
        world.scheduler.after(until_s, self.stop)

    def stop(self) -> None:
        world = self._world
        world.kills.drawn = lambda _: False
        world.bus.jetstream.faults = jetstream.Faults()
        world.ductile.faults, world.model.faults = ductile.Faults(), model.Faults()
        for disk in world.services.disks.values():
            disk.full = False

    def _some(self, most: float) -> float:
        """A probability, mostly 0, so that each world has few kinds of faults."""
        return self._draw.uniform(0, most) if self._draw.random() < 0.3 else 0.0

    def _bus(self) -> None:
        faults = self._world.bus.jetstream.faults
        faults.ack_lost, faults.not_stored = self._some(0.1), self._some(0.05)
        faults.settled_unheard, faults.doubled = self._some(0.2), self._some(0.3)
        faults.out_of_order = self._some(0.3)

    def _ductile(self) -> None:
        faults = self._world.ductile.faults
        faults.answer_lost, faults.request_lost = self._some(0.3), self._some(0.3)
        faults.refused, faults.forgets = self._some(0.2), self._some(0.1)

    def _model(self) -> None:
        faults = self._world.model.faults
        faults.unavailable, faults.answer_lost, faults.garbage = self._some(0.3), self._some(0.2), self._some(0.2)

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
        faults = self._world.bus.jetstream.faults
        faults.full = frozenset({self._draw.choice(list(self._world.bus.jetstream.streams))})
        self._world.scheduler.after(self._draw.uniform(0.1, 3), lambda: setattr(faults, "full", frozenset()))


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
