"""Pace: no more than granted, first come first served, and long waits are put off instead of waited for.

Time passes only when a case says so: no test of waiting has to wait.
"""

import asyncio
from collections.abc import Callable

import pytest

from agent_service.admission.rate_limits import Pace
from agent_service.errors import ModelError
from tests.kit.virtual_time import VirtualTime


class Callers(VirtualTime):
    """Calls that ask a pace to be admitted, what became of each, and the time that they do it in."""

    def __init__(self, requests: int | None = None, tokens: int | None = None) -> None:
        super().__init__()
        self.admitted: list[tuple[float, str]] = []
        """The instant and the name of each call, in the order of their admission."""
        self.refused: dict[str, ModelError] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.pace = Pace(requests_per_minute=requests, tokens_per_minute=tokens, now=lambda: self.now, sleep=self.sleep)

    async def _admit(self, name: str, tokens: int) -> None:
        try:
            await self.pace.admit(tokens)
        except ModelError as error:
            self.refused[name] = error
        else:
            self.admitted.append((round(self.now, 2), name))

    def ask(self, name: str, tokens: int = 0) -> None:
        self._tasks[name] = asyncio.ensure_future(self._admit(name, tokens))

    def give_up(self, name: str) -> None:
        self._tasks[name].cancel()

    async def leave(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


Step = Callable[[Callers], object]


def ask(name: str, tokens: int = 0) -> Step:
    return lambda callers: callers.ask(name, tokens)


def passes(seconds: float) -> Step:
    return lambda callers: callers.passes(seconds)


def give_up(name: str) -> Step:
    return lambda callers: callers.give_up(name)


def hold(seconds: float, why: str = "429") -> Step:
    return lambda callers: callers.pace.hold(seconds, why)


def settle(admitted: int, used: int) -> Step:
    return lambda callers: callers.pace.settle(admitted, used)


FIRST = (ask("first", 6000), passes(0))
"""Takes all that a minute has."""
CASES: dict[str, tuple[dict[str, int], tuple[Step, ...], str, dict[str, float]]] = {
    "tokens are paced as requests are": (
        {"tokens": 6000},
        (*(ask(name, 1500) for name in "abcdef"), passes(30)),
        "a0 b0 c0 d0 e15",
        {"f": 30},
    ),
    "the stricter of both rates holds": (
        {"requests": 6, "tokens": 600},
        (ask("large", 500), ask("b", 100), ask("c", 100), passes(20)),
        "large0 b0 c10",
        {},
    ),
    "what was not used fills the minute and no more": (
        {"requests": 2},
        (passes(3600), *(ask(name) for name in "abc"), passes(0)),
        "a3600 b3600",
        {"c": 30},
    ),
    "a call larger than a minute's worth waits for a full minute and holds the next ones back": (
        {"tokens": 6000},
        (ask("larger", 9000), passes(0), ask("next", 100), passes(31), ask("later", 100), passes(0)),
        "larger0 later31",
        {"next": 31},
    ),
    "who comes first is served first though the next needs less": (
        {"tokens": 6000},
        (*FIRST, ask("large", 1000), ask("small", 1), passes(20)),
        "first0 large10 small10.01",
        {},
    ),
    "who gives up while waiting takes nothing and holds nobody up": (
        {"tokens": 6000},
        (*FIRST, ask("impatient", 1500), ask("patient", 500), passes(1), give_up("impatient"), passes(4)),
        "first0 patient5",
        {},
    ),
    "a long wait is put off with the time it would take": (
        {"tokens": 6000},
        (*FIRST, ask("put off", 2100), passes(21), ask("again", 2100), passes(0)),
        "first0 again21",
        {"put off": 21},
    ),
    "while the provider holds us back nobody goes on": (
        {},
        (hold(10), *(ask(name) for name in "abc"), passes(11)),
        "a10 b10 c10",
        {},
    ),
    "a long hold is put off": ({}, (hold(30), ask("a"), passes(30), ask("b"), passes(0)), "b30", {"a": 30}),
    "a shorter hold does not end a longer one": ({}, (hold(15), hold(1), ask("a"), passes(20)), "a15", {}),
    "who is waiting already is put off when the hold is long": (
        {"requests": 6},
        (*(ask(name) for name in "abcdefg"), passes(5), hold(60), passes(5)),
        "a0 b0 c0 d0 e0 f0",
        {"g": 55},
    ),
    "what a call did not use is given back": (
        {"tokens": 6000},
        (*FIRST, settle(6000, 1000), ask("next", 5000), passes(0)),
        "first0 next0",
        {},
    ),
    "what a call used beyond is taken": (
        {"tokens": 6000},
        (ask("first", 1000), passes(0), settle(1000, 6000), ask("next", 500), passes(20)),
        "first0 next5",
        {},
    ),
    "giving back never makes more than a minute's worth": (
        {"tokens": 6000},
        (*FIRST, passes(60), settle(6000, 0), ask("all", 6000), ask("more", 600), passes(5.9)),
        "first0 all60",
        {},
    ),
    "a request is not given back with its tokens": (
        {"requests": 1, "tokens": 6000},
        (ask("first", 100), passes(0), settle(100, 0), ask("next", 1), passes(0)),
        "first0",
        {"next": 60},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_calls_are_admitted_at_their_time_and_put_off_for_theirs(case: str) -> None:
    rates, steps, admitted, refused = CASES[case]
    callers = Callers(**rates)
    for step in steps:
        done = step(callers)
        if asyncio.iscoroutine(done):
            await done
    assert " ".join(f"{name}{at:g}" for at, name in callers.admitted) == admitted
    assert {name: error.retry_after_s for name, error in callers.refused.items()} == pytest.approx(refused)
    await callers.leave()


@pytest.mark.parametrize("minutes", [1, 5])
async def test_over_any_time_no_more_is_admitted_than_granted(minutes: int) -> None:
    callers = Callers(requests=30, tokens=3000)
    for second in range(60 * minutes):
        for number in range(3):
            callers.ask(f"{second}.{number}", tokens=50 + 40 * number)
        await callers.passes(1)
    spent = sum(50 + 40 * int(name[-1]) for _, name in callers.admitted)
    assert spent <= 3000 * (minutes + 1)
    assert 30 * minutes * 0.9 <= len(callers.admitted) <= 30 * (minutes + 1)
    await callers.leave()
