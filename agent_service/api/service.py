"""The HTTP calls on the service itself: whether it lives, whether it can work, what it has counted and can be asked."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel

from agent_service.api.docs import page as docs_page
from agent_service.api.openapi import document
from groundwork.telemetry.metrics import CONTENT_TYPE

READY_WITHIN_S = 3.0
OK = "ok"

Readiness = Callable[[], Awaitable[Mapping[str, str]]]
MetricsText = Callable[[], Awaitable[bytes]]


class Alive(BaseModel):
    """The process lives."""

    alive: Literal[True] = True


class Ready(BaseModel):
    """`checks` says `ok` of each thing the service needs, or what is wrong with it. `store` is the id of its store."""

    ready: bool
    checks: dict[str, str]
    store: str


class ServiceCalls:
    """Their docstrings are the API's documentation.

    `store` is the id of the agent's store; `metrics` gives the text of /metrics.
    """

    def __init__(
        self,
        app: FastAPI,
        readiness: Readiness,
        *,
        store: str,
        metrics: MetricsText,
        ready_within_s: float = READY_WITHIN_S,
    ) -> None:
        self._app = app
        self._store = store
        self._metrics = metrics
        self._readiness = readiness
        self._within_s = ready_within_s

    async def healthz(self) -> Alive:
        """The process lives and answers."""
        return Alive()

    async def readyz(self, response: Response) -> Ready:
        """Whether runs can be accepted and go on now: 200 or 503, with what is wrong."""
        try:
            found = dict(await asyncio.wait_for(self._readiness(), self._within_s))
        except TimeoutError:
            found = {"agent": f"did not find out within {self._within_s:g} s"}
        if any(found.values()):
            response.status_code = 503
        checks = {name: wrong or OK for name, wrong in found.items()}
        return Ready(ready=not any(found.values()), checks=checks, store=self._store)

    async def metrics(self) -> PlainTextResponse:
        """What is counted, in the Prometheus text format."""
        return PlainTextResponse(await self._metrics(), media_type=CONTENT_TYPE)

    async def openapi(self) -> JSONResponse:
        return JSONResponse(document(self._app))

    async def docs(self) -> HTMLResponse:
        return HTMLResponse(docs_page(document(self._app)))
