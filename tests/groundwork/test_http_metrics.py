"""Requests over HTTP are measured by route, whatever address was asked for."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from groundwork.http.metrics import Measured, request_durations
from groundwork.telemetry.metrics import Histogram, Instruments


async def show(request: Request) -> Response:
    if request.path_params["name"] == "broken":
        raise RuntimeError
    return PlainTextResponse(request.path_params["name"])


async def events(_: Request) -> Response:
    async def told() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"

    return StreamingResponse(told(), media_type="text/event-stream")


APP = Starlette(routes=[Route("/things/{name}", show), Route("/events", events), Route("/healthz", show)])


@pytest.fixture
def durations() -> Histogram:
    return request_durations(Instruments())


async def ask(durations: Histogram, *paths: str, method: str = "GET") -> set[tuple[str, ...]]:
    """The series that there are once all were asked for."""
    transport = httpx2.ASGITransport(app=Measured(APP, durations), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
        for path in paths:
            await client.request(method, path)
    return set(durations.values)


async def test_requests_to_one_route_are_one_series_whatever_was_asked_for(durations: Histogram) -> None:
    assert await ask(durations, "/things/a", "/things/b") == {("GET", "/things/{name}", "200")}
    assert sum(durations.values["GET", "/things/{name}", "200"].counts) == 2


async def test_a_method_that_somebody_made_up_is_no_series_of_its_own(durations: Histogram) -> None:
    assert await ask(durations, "/things/a", method="GUESS") == {("other", "/things/{name}", "405")}


async def test_streams_and_probes_are_left_out(durations: Histogram) -> None:
    assert await ask(durations, "/events", "/healthz") == set()
