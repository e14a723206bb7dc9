"""Rate limiter: no more than granted, first come first served; long waits are postponed.

Time passes only when a case says so: no test of waiting has to wait.
"""

import asyncio

import pytest

from agent_service.admission.rate_limits import RateLimiter
from agent_service.errors import ModelError
from tests.kit.virtual_time import VirtualTime


class Callers(VirtualTime):
    """Calls that ask a rate limiter for admission, their outcomes, and the clock."""

    def __init__(self, requests: int | None = None, tokens: int | None = None) -> None:
        super().__init__()
        self.admitted: list[tuple[float, str]] = []
        """Instant and name of each call, in the order of admission."""
        self.put_off: dict[str, float | None] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.rate_limiter = RateLimiter(
            requests_per_minute=requests, tokens_per_minute=tokens, now=lambda: self.now, sleep=self.sleep
        )

    async def _admit(self, name: str, tokens: int) -> None:
        try:
            await self.rate_limiter.admit(tokens)
        except ModelError as error:
            self.put_off[name] = error.retry_after_s
        else:
            self.admitted.append((round(self.now, 2), name))

    def ask(self, name: str, tokens: int = 0) -> None:
        self._tasks[name] = asyncio.ensure_future(self._admit(name, tokens))

    async def do(self, script: str) -> None:
        """`+5` lets five seconds pass, `a=9` requests nine tokens, `-a` gives up, `hold=10` is the provider's wish, and
        `used=1/9` settles a call that used one of nine tokens.
        """
        for word in script.split():
            name, _, number = word.partition("=")
            match name[0], name:
                case "+", _:
                    await self.passes(float(word))
                case "-", _:
                    self._tasks[name[1:]].cancel()
                case _, "hold":
                    self.rate_limiter.hold(float(number), "429")
                case _, "used":
                    used, _, admitted = number.partition("/")
                    self.rate_limiter.settle(int(admitted), int(used))
                case _:
                    self.ask(name, int(number or 0))

    async def leave(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


REQUESTS, TOKENS = "requests", "tokens"
CASES: dict[str, tuple[dict[str, int], str, str, dict[str, float]]] = {
    "tokens are paced as requests are": (
        {TOKENS: 6000},
        "a=1500 b=1500 c=1500 d=1500 e=1500 f=1500 +30",
        "a0 b0 c0 d0 e15",
        {"f": 30},
    ),
    "the stricter of both rates holds": ({REQUESTS: 6, TOKENS: 600}, "a=500 b=100 c=100 +20", "a0 b0 c10", {}),
    "what was not used fills the minute and no more": ({REQUESTS: 2}, "+3600 a b c +0", "a3600 b3600", {"c": 30}),
    "a call larger than a minute's worth waits for a full minute and holds the next ones back": (
        {TOKENS: 6000},
        "larger=9000 +0 next=100 +31 later=100 +0",
        "larger0 later31",
        {"next": 31},
    ),
    "who comes first is served first though the next needs less": (
        {TOKENS: 6000},
        "first=6000 +0 large=1000 small=1 +20",
        "first0 large10 small10.01",
        {},
    ),
    "who gives up while waiting takes nothing and holds nobody up": (
        {TOKENS: 6000},
        "first=6000 +0 impatient=1500 patient=500 +1 -impatient +4",
        "first0 patient5",
        {},
    ),
    "a long wait is put off with the time it would take": (
        {TOKENS: 6000},
        "first=6000 +0 a=2100 +21 again=2100 +0",
        "first0 again21",
        {"a": 21},
    ),
    "while the provider holds us back nobody goes on": ({}, "hold=10 a b c +11", "a10 b10 c10", {}),
    "a long hold is put off": ({}, "hold=30 a +30 b +0", "b30", {"a": 30}),
    "a shorter hold does not end a longer one": ({}, "hold=15 hold=1 a +20", "a15", {}),
    "who is waiting already is put off when the hold is long": (
        {REQUESTS: 6},
        "a b c d e f g +5 hold=60 +5",
        "a0 b0 c0 d0 e0 f0",
        {"g": 55},
    ),
    "what a call did not use is given back": ({TOKENS: 6000}, "a=6000 +0 used=1000/6000 b=5000 +0", "a0 b0", {}),
    "what a call used beyond is taken": ({TOKENS: 6000}, "a=1000 +0 used=6000/1000 b=500 +20", "a0 b5", {}),
    "giving back never makes more than a minute's worth": (
        {TOKENS: 6000},
        "first=6000 +60 used=0/6000 all=6000 more=600 +5.9",
        "first0 all60",
        {},
    ),
    "a request is not given back with its tokens": (
        {REQUESTS: 1, TOKENS: 6000},
        "a=100 +0 used=0/100 b=1 +0",
        "a0",
        {"b": 60},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_calls_are_admitted_at_their_time_and_put_off_for_theirs(case: str) -> None:
    rates, script, admitted, put_off = CASES[case]
    callers = Callers(**rates)
    await callers.do(script)
    assert " ".join(f"{name}{at:g}" for at, name in callers.admitted) == admitted
    assert callers.put_off == pytest.approx(put_off)
    await callers.leave()


async def test_over_any_time_no_more_is_admitted_than_granted() -> None:
    callers = Callers(requests=30, tokens=3000)
    for second in range(5 * 60):
        for number in range(3):
            callers.ask(f"{second}.{number}", tokens=50 + 40 * number)
        await callers.passes(1)
    assert sum(50 + 40 * int(name[-1]) for _, name in callers.admitted) <= 3000 * 6
    assert 30 * 5 * 0.9 <= len(callers.admitted) <= 30 * 6
    await callers.leave()
