"""Answers we wait for: one subscription for all, each question known by the last token of its reply subject. Cheaper
than the client's own requests, which make an id, an inbox and a timed wait for each."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from nats.aio.client import Client
from nats.aio.msg import Msg

from groundwork.service.errors import Failure, TryAgain


class PendingAnswers:
    """One for each connection; `listen` comes first."""

    def __init__(self) -> None:
        self._prefix = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[str, tuple[str, asyncio.Future[Msg]]] = {}

    async def listen(self, client: Client) -> None:
        self._prefix = client.new_inbox() + "."
        await client.subscribe(self._prefix + "*", cb=self._on_answer)

    async def ask(self, subject: str, put: Callable[[str], Awaitable[None]], *, within_s: float) -> Msg:
        """The answer to a question on `subject`, which `put` sends with its reply address. Raises TryAgain when none
        comes in time, what `put` raises, and what `fail` is told."""
        address = f"{self._prefix}{next(self._numbers)}"
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Msg] = loop.create_future()
        self._waiting[address] = (subject, answer)
        alarm = loop.call_later(within_s, _give_up, answer, TryAgain("no answer in time"))
        try:
            await put(address)
            return await answer
        finally:
            alarm.cancel()
            del self._waiting[address]

    def fail(self, error: Failure, *, subject: str | None = None) -> None:
        """Every answer fails at once, or those to `subject` in whatever case its letters are."""
        for asked, answer in self._waiting.values():
            if subject is None or asked.lower() == subject:
                _give_up(answer, error)

    async def _on_answer(self, message: Msg) -> None:
        _, answer = self._waiting.get(message.subject, ("", None))
        if answer is not None and not answer.done():
            answer.set_result(message)


def _give_up(answer: asyncio.Future[Msg], error: Failure) -> None:
    if not answer.done():
        answer.set_exception(error)
