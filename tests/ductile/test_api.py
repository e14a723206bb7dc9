"""The HTTP client of a Ductile: requests, and how answers are understood."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest

from ductile_gateway.ductile.api import (
    MOST_BYTES,
    AnswerLost,
    DuctileApi,
    DuctileRefused,
    Endpoint,
    NotSent,
    Unavailable,
    UnreadableAnswer,
    open_api,
)
from tests.ductile.running import NOWHERE
from tests.gateway.parts import ILLEGAL_NAMES

JOB, LOOK = {"job_id": "j-1"}, Endpoint.CALL.path_of("probe", "look")
TOKEN = NOWHERE.token.get_secret_value()
STARTS: list[tuple[httpx2.Response | Exception, type[Exception]]] = [
    *((error("x"), NotSent) for error in (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)),
    *(
        (error("x"), AnswerLost)
        for error in (httpx2.ReadError, httpx2.ReadTimeout, httpx2.WriteError, httpx2.WriteTimeout)
    ),
    (httpx2.RemoteProtocolError("x"), AnswerLost),
    (httpx2.Response(500, json={"error": "failed to enqueue job"}), AnswerLost),
    (httpx2.Response(503), AnswerLost),
    (httpx2.Response(200, json=JOB), AnswerLost),
    (httpx2.Response(202), AnswerLost),
    (httpx2.Response(202, text="[" * 100_000), AnswerLost),
    *((httpx2.Response(202, json=odd), AnswerLost) for odd in ({"job_id": 7}, {"job_id": "../x"}, ["j-1"])),
    (httpx2.Response(307, headers={"location": "http://elsewhere/"}), AnswerLost),
    (httpx2.Response(202, content=b"x" * (MOST_BYTES + 1)), AnswerLost),
    (
        httpx2.Response(400, json={"error": "root baggage claims failed: \n\x1b[31m" + TOKEN + "x" * 5000}),
        DuctileRefused,
    ),
]


def api_that(answers: httpx2.Response | Exception) -> AbstractAsyncContextManager[DuctileApi]:

    def told(_: httpx2.Request) -> httpx2.Response:
        if isinstance(answers, Exception):
            raise answers
        return answers

    return open_api(NOWHERE, httpx2.MockTransport(told))


async def test_a_start_was_not_sent_or_refused_or_is_lost_unless_the_answer_has_the_id_of_a_job() -> None:
    for answer, error in STARTS:
        async with api_that(answer) as api:
            with pytest.raises(error) as caught:
                await api.start(LOOK, {})
        assert caught.type is error, answer
    assert str(caught.value).startswith("Ductile answered 400")
    assert (str(caught.value).isprintable(), TOKEN in str(caught.value)) == (True, False), "a line could be forged"
    assert len(str(caught.value)) < 400


async def test_a_connection_that_fails_says_why() -> None:
    async with api_that(httpx2.ConnectError("certificate verify failed: self-signed certificate")) as api:
        for ask in (api.start(LOOK, {}), api.skills()):
            with pytest.raises((NotSent, Unavailable), match="self-signed certificate"):
                await ask


@pytest.mark.attack(64)
async def test_what_a_proxy_repeats_of_a_request_is_told_without_the_token() -> None:
    for status in (403, 502):
        async with api_that(httpx2.Response(status, text="x" * 290 + "Authorization: Bearer token-of-mine")) as api:
            with pytest.raises(AnswerLost) as caught:
                await api.start(LOOK, {})
            assert "token" not in str(caught.value)
            with pytest.raises(Unavailable) as refused:
                await api.jobs(plugin="probe", command="look", most=1)
            assert "token" not in str(refused.value)


@pytest.mark.parametrize("body", [b"", b"x" * (MOST_BYTES + 1)])
async def test_a_job_that_cannot_be_told_is_unreadable(body: bytes) -> None:
    async with api_that(httpx2.Response(200, content=body)) as api:
        with pytest.raises(UnreadableAnswer):
            await api.job("j-1")


@pytest.mark.parametrize("ask", [lambda api: api.job("j-1"), lambda api: api.plugin("probe")], ids=["job", "plugin"])
async def test_only_ductile_itself_says_that_it_knows_no_such_thing(ask: Callable[[DuctileApi], Any]) -> None:
    for words in ("job not found", "plugin not found"):
        async with api_that(httpx2.Response(404, json={"error": words})) as api:
            assert await ask(api) is None
    async with api_that(httpx2.Response(404, text="not here")) as api:
        with pytest.raises(Unavailable) as caught:
            await ask(api)
        assert caught.type is Unavailable, "it would be refused for good"


async def test_what_is_no_id_and_no_name_never_reaches_a_url() -> None:
    async with api_that(AssertionError("it was asked")) as api:
        for job_id in ("", "../x", "a/b", "a?b", "a" * 65, "j\n"):
            for ask in (api.job(job_id), api.tree(job_id)):
                with pytest.raises(Unavailable):
                    await ask
        for name in ILLEGAL_NAMES:
            for endpoint, names in ((Endpoint.PLUGIN, [name]), (Endpoint.CALL, ["probe", name])):
                with pytest.raises(DuctileRefused, match="not a legal name"):
                    endpoint.path_of(*names)
