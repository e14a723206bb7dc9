"""The HTTP client of a Ductile and the receipts: what is sent, how answers are understood, what survives."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest

from ductile_gateway.ductile.answers import Away, DuctileRefused, Lost, NotSent, Unreadable
from ductile_gateway.ductile.api import MOST_BYTES, DuctileApi, open_api
from ductile_gateway.ductile.settings import DuctileSettings

SETTINGS = DuctileSettings.model_validate({"url": "http://localhost:1/base", "token": "the-token"})
ACCEPTED = httpx2.Response(202, json={"job_id": "j-1"})


@asynccontextmanager
async def api_over(answer: Callable[[httpx2.Request], httpx2.Response]) -> AsyncIterator[DuctileApi]:
    async with open_api(SETTINGS, httpx2.MockTransport(answer)) as api:
        yield api


def raising(error: Exception) -> Callable[[httpx2.Request], httpx2.Response]:
    def answer(_: httpx2.Request) -> httpx2.Response:
        raise error

    return answer


async def test_a_start_is_a_sized_body_with_the_payload_and_the_token() -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return ACCEPTED

    async with api_over(answer) as api:
        assert await api.start("probe", "look", {"a": [1]}) == "j-1"
    assert str(asked[0].url) == "http://localhost:1/base/plugin/probe/look"
    assert json.loads(asked[0].content) == {"payload": {"a": [1]}}
    assert asked[0].headers["content-length"] == str(len(asked[0].content))
    assert asked[0].headers["authorization"] == "Bearer the-token"


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


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(500),
        httpx2.Response(401),
        httpx2.Response(302, headers={"location": "http://elsewhere/"}),
        httpx2.Response(200, text="<html>"),
        httpx2.Response(200, text="[]"),
    ],
)
async def test_what_does_not_answer_a_question_is_away(answer: httpx2.Response) -> None:
    async with api_over(lambda _: answer) as api:
        with pytest.raises(Away):
            await api.job("j-1")


@pytest.mark.attack(52)
@pytest.mark.parametrize("job_id", ["", "../x", "a/b", "a?b", "a" * 65, "j\n"])
async def test_an_id_that_is_none_never_reaches_a_url(job_id: str) -> None:
    async with api_over(raising(AssertionError("it was asked"))) as api:
        with pytest.raises(Away):
            await api.job(job_id)
        with pytest.raises(Away):
            await api.tree(job_id)


async def test_a_start_that_is_given_up_leaves_nothing_on_its_way() -> None:
    """What the kernel has not sent by then it would send for minutes, to a Ductile that is long said to have none."""
    ends: asyncio.Queue[str] = asyncio.Queue()

    async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(4096):
                pass
            await ends.put("closed")
        except ConnectionResetError:
            await ends.put("reset")
        writer.close()

    async with await asyncio.start_server(never_answers, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = DuctileSettings.model_validate({"url": url, "token": "t", "request_timeout_s": 0.1})
        async with open_api(settings) as api:
            with pytest.raises(Lost):
                await api.start("probe", "note", {})
        assert await ends.get() == "reset"
