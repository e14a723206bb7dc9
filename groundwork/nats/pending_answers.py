"""Answers we wait for: one subscription for all, each question known by the last token of its reply subject.

Much cheaper than the client's own requests, which make a random id, an inbox and a timed wait for each. An answer that
nobody waits for any more is dropped.
"""

import asyncio
import itertools

from nats.aio.client import Client
from nats.aio.msg import Msg

from groundwork.service.errors import Failure, TryAgain


class PendingAnswers:
    """Open an answer, send its address as the reply subject, await it, close it."""

    def __init__(self) -> None:
        self._prefix = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[str, tuple[str, asyncio.Future[Msg]]] = {}

    async def listen(self, client: Client) -> None:
        self._prefix = client.new_inbox() + "."
        await client.subscribe(self._prefix + "*", cb=self._on_answer)

    def open(self, subject: str) -> tuple[str, asyncio.Future[Msg]]:
        """The address for an answer to a question on `subject`, and its future."""
        address = f"{self._prefix}{next(self._numbers)}"
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[address] = (subject, answer)
        return address, answer

    def close(self, address: str) -> None:
        self._waiting.pop(address, None)

    def fail(self, error: Failure, *, subject: str | None = None) -> None:
        """Every answer fails at once, or those to `subject` in whatever case its letters are."""
        for asked, answer in self._waiting.values():
            if subject is None or asked.lower() == subject:
                give_up(answer, error)

    async def _on_answer(self, message: Msg) -> None:
        _, answer = self._waiting.get(message.subject, ("", None))
        if answer is not None and not answer.done():
            answer.set_result(message)


def give_up(answer: asyncio.Future[Msg], error: Failure) -> None:
    if not answer.done():
        answer.set_exception(error)


def no_answer(answer: asyncio.Future[Msg]) -> None:
    """For a timer: the time for this try is over."""
    give_up(answer, TryAgain("no answer in time"))
