"""Plays a course with a death at each of its effects.

The part before an effect is played once: there the process forks. In the copy the acting service dies, and the copy
plays to the end and reports. The original goes on to the next effect.
"""

import json
import os
import signal
import warnings
from asyncio import events
from collections.abc import Iterator
from dataclasses import dataclass

from tests.sim.invariants import Violation
from tests.sim.machines.time import Process, Stuck
from tests.sim.world import World

LONGEST_S = 100
"""Seconds that a copy may take."""


@dataclass(frozen=True)
class Schedule:
    """Result of one schedule. `death` is the number of the effect before which a service died, 0 without a death;
    `at` is its name."""

    death: int
    at: str
    rule: str = ""
    what: str = ""

    @property
    def flaw(self) -> str:
        return f"{self.rule}: {self.what} (a death at {self.death}, {self.at})" if self.rule else ""


class Deaths:
    """`to_the_first` stops after the first broken rule."""

    def __init__(self, world: World, *, to_the_first: bool = False) -> None:
        self._world = world
        self._to_the_first = to_the_first
        self._played: list[Schedule] = []
        self._tell: int | None = None
        """Pipe to which a copy reports."""
        world.boundary.dies = self._dies

    def play(self) -> Iterator[Schedule]:
        """Yields the schedule without a death last."""
        rule, what = self._end()
        if self._tell is None:
            yield from self._played
            yield Schedule(0, "", rule, what)
            return
        if not self._world.record.deaths:
            rule, what = "a death happens where it is wanted", "nothing died"
        os.write(self._tell, json.dumps([rule, what]).encode())
        os._exit(0)

    def _end(self) -> tuple[str, str]:
        try:
            self._world.play()
        except Violation as violation:
            return violation.rule, str(violation)
        except Stuck as stuck:
            return "what is begun goes on", str(stuck)
        except BaseException as error:
            if self._tell is None:
                raise
            return "a world can be played", repr(error)
        return "", ""

    def _dies(self, process: Process) -> bool:
        if self._tell is not None or (self._to_the_first and any(one.rule for one in self._played)):
            return False
        names = self._world.boundary.effects
        told, tell = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads of a test process hold nothing of ours
            pid = os.fork()
        if pid == 0:
            signal.alarm(LONGEST_S)
            self._tell = tell
            events._set_running_loop(process)  # asyncio knows it by the number of this process
            return True
        os.close(tell)
        with os.fdopen(told, "rb") as copy:
            heard = copy.read()
        os.waitpid(pid, 0)
        rule, what = json.loads(heard) if heard else ("a world can be played", "the copy ended without a word")
        self._played.append(Schedule(len(names), names[-1], rule, what))
        return False
