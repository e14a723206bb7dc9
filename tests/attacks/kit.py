"""What makes a strike a test, on our program and on an unprotected twin of it."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest

SIDES = ("ours", "twin")


class Target(Protocol):
    """What is attacked."""

    @property
    def protected(self) -> bool:
        """Whether it is ours, and not the twin."""


def attack(*cases: int, twin: bool = True) -> Callable[[Callable[..., Awaitable[object]]], Callable[..., Any]]:
    """The strike as a test: on our program it gets nothing, on the unprotected twin something.

    cases: those of docs/SECURITY.md. `twin` is False where no twin can be had, which the table of attacks shows.
    """

    def as_test(strike: Callable[..., Awaitable[object]]) -> Callable[..., Any]:
        @functools.wraps(strike)
        async def test(target: Target, **given: Any) -> None:
            got = await strike(target=target, **given)
            if target.protected:
                assert not got, f"the attacker got {got!r}"
            else:
                assert got, "the unprotected twin withstood this: it is no attack"

        sides = SIDES if twin else SIDES[:1]
        marked: Callable[..., Any] = pytest.mark.attack(*cases)(pytest.mark.parametrize("side", sides)(test))
        return marked

    return as_test
