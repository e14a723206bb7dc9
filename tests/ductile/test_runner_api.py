"""The HTTP client of a Ductile and the receipts: what is sent, how answers are understood, what survives."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest

from ductile_gateway.ductile.answers import Away, DuctileRefused, Lost, NotSent, Unreadable
from ductile_gateway.ductile.api import MOST_BYTES, DuctileApi, open_api
from ductile_gateway.ductile.settings import DuctileSettings

SETTINGS = DuctileSettings.model_validate({"url": "http://localhost:1/base", "token": "the-token"})


@asynccontextmanager
async def api_over(answer: Callable[[httpx2.Request], httpx2.Response]) -> AsyncIterator[DuctileApi]:
    async with open_api(SETTINGS, httpx2.MockTransport(answer)) as api:
        yield api


def raising(error: Exception) -> Callable[[httpx2.Request], httpx2.Response]:
    def answer(_: httpx2.Request) -> httpx2.Response:
        raise error

    return answer


@pytest.mark.parametrize("error", [httpx2.ConnectError("x"), httpx2.ConnectTimeout("x"), httpx2.PoolTimeout("x")])
async def test_what_fails_before_anything_was_sent_may_be_sent_again(error: Exception) -> None:
    async with api_over(raising(error)) as api:
        with pytest.raises(NotSent):
            await api.start("probe", "look", {})


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ReadError("x"),
        httpx2.ReadTimeout("x"),
        httpx2.WriteError("x"),
        httpx2.WriteTimeout("x"),
        httpx2.RemoteProtocolError("x"),
    ],
)
async def test_what_fails_after_something_was_sent_is_lost(error: Exception) -> None:
    async with api_over(raising(error)) as api:
        with pytest.raises(Lost):
            await api.start("probe", "look", {})


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(500, json={"error": "failed to enqueue job"}),
        httpx2.Response(503),
        httpx2.Response(200, json={"job_id": "j-1"}),
        httpx2.Response(202),
        httpx2.Response(202, text="[" * 100_000),
        httpx2.Response(202, json={"job_id": 7}),
        httpx2.Response(202, json={"job_id": "../x"}),
        httpx2.Response(202, json=["j-1"]),
        httpx2.Response(307, headers={"location": "http://elsewhere/"}),
        httpx2.Response(202, content=b"x" * (MOST_BYTES + 1)),
    ],
)
async def test_an_answer_without_the_id_of_a_job_is_lost(answer: httpx2.Response) -> None:
    async with api_over(lambda _: answer) as api:
        with pytest.raises(Lost):
            await api.start("probe", "look", {})


async def test_a_refusal_is_told_with_ductiles_words_and_nothing_that_could_forge_a_line() -> None:
    async with api_over(
        lambda _: httpx2.Response(400, json={"error": "root baggage claims failed: \n\x1b[31m" + "x" * 5000})
    ) as api:
        with pytest.raises(DuctileRefused, match="Ductile answered 400") as caught:
            await api.start("probe", "look", {})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.attack(51)
@pytest.mark.parametrize("body", [b"", b"x" * (MOST_BYTES + 1)])
async def test_a_job_that_cannot_be_told_is_unreadable(body: bytes) -> None:
    async with api_over(lambda _: httpx2.Response(200, content=body)) as api:
        with pytest.raises(Unreadable):
            await api.job("j-1")


@pytest.mark.attack(52)
@pytest.mark.parametrize("job_id", ["", "../x", "a/b", "a?b", "a" * 65, "j\n"])
async def test_an_id_that_is_none_never_reaches_a_url(job_id: str) -> None:
    async with api_over(raising(AssertionError("it was asked"))) as api:
        with pytest.raises(Away):
            await api.job(job_id)
        with pytest.raises(Away):
            await api.tree(job_id)
