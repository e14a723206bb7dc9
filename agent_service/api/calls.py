"""The HTTP API: its table of calls, each with the scope that it needs, what it takes and how it can refuse.

Order of a request: the door (Host, Origin), the token and its scope, then parameters and body. Nothing is parsed for
somebody who may not call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import Depends, FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel

from agent_service.api import errors as http_errors
from agent_service.api.access import Access
from agent_service.api.awaiting import Awaiting
from agent_service.api.body import documented
from agent_service.api.desk import Desk
from agent_service.api.docs import page as docs_page
from agent_service.api.door import Door
from agent_service.api.event_streams import EventStream, EventStreams
from agent_service.api.freshness import Fresh, at_once
from agent_service.api.openapi import document
from agent_service.api.operations import Operations
from agent_service.api.page import ROOT, Page
from agent_service.api.requests import (
    MAX_BODY_BYTES,
    AnswerRequest,
    ApprovalRequest,
    CancelRequest,
    DrainRequest,
    Nothing,
    PruneRequest,
    SignalRequest,
    StopRequest,
    WakeRequest,
)
from agent_service.api.run_calls import RunCalls
from agent_service.api.whoami import Whoami
from agent_service.caller_settings import Scope
from agent_service.settings import AgentSettings
from agent_service.telling.folder.run_files import RunFiles
from groundwork.http.bodies import Bodies
from groundwork.service.store_id import known_id
from groundwork.telemetry.metrics import CONTENT_TYPE

TITLE = "Agentic Loop"
ABOUT = "Durable, goal-directed runs: wake one, watch it, speak to it, cancel it. Accepted is not completed."
VERSION = "1"

RUN = "/v1/runs/{run_id}"
LETTERS = "/v1/dead-letters"

READY_WITHIN_S = 3.0
OK = "ok"

Readiness = Callable[[], Awaitable[Mapping[str, str]]]
"""What is wrong with each thing the agent needs, by its name; empty texts when all is well."""
MetricsText = Callable[[], Awaitable[bytes]]

OF_RUNS = ("/v1/runs", "/v1/counts", "/v1/inbox", "/v1/events")
"""Calls that show what runs have come to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One route. `scope` is null for what is open to everybody; `takes` is the body of a POST."""

    method: Literal["GET", "POST"] = "GET"
    path: str
    endpoint: Callable[..., Any]
    scope: Scope | None
    takes: type[BaseModel] | None = None
    errors: tuple[int, ...] = ()
    answers: type[Response] = JSONResponse
    before: tuple[Callable[..., Any], ...] = ()
    """Dependencies that run after the token was checked."""
    shown: bool = True


class Alive(BaseModel):
    alive: Literal[True] = True


class Ready(BaseModel):
    """`checks` says `ok` of each thing the service needs, or what is wrong with it. `store` is the id of its store."""

    ready: bool
    checks: dict[str, str]
    store: str


class ServiceCalls:
    """The calls on the service: whether it lives, whether it can work, what it has counted, what it can be asked.

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


def create_app(
    desk: Desk,
    files: RunFiles,
    readiness: Readiness,
    settings: AgentSettings,
    *,
    operations: Operations,
    streams: EventStreams,
    metrics: MetricsText,
    fresh: Fresh = at_once,
    member: str | None = None,
) -> FastAPI:
    """The API as an ASGI application. Raises Misconfigured for settings that would open it to the world.

    `fresh` is waited for before runs are shown; `member` is the agent's name, where several share a store.
    """
    app = FastAPI(
        title=TITLE,
        version=VERSION,
        description=ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # told by our own, or not at all
    )
    app.state.bodies = Bodies(MAX_BODY_BYTES)
    http_errors.install(app)
    app.add_middleware(Door, allowed_hosts=settings.http.allowed_hosts)
    access = Access(settings.http)
    awaiting = Awaiting(streams)
    api = RunCalls(desk, files, awaiting)
    service = ServiceCalls(app, readiness, store=known_id(settings.store), metrics=metrics)
    for call in (
        *_calls_on_runs(api, awaiting),
        *_calls_for_operators(operations),
        *_event_streams(streams),
        *_calls_on_the_service(service, Whoami(settings, member)),
        *_calls_for_the_page(Page()),
    ):
        _add(app, access, call, fresh)
    return app


def _calls_on_runs(api: RunCalls, awaiting: Awaiting) -> tuple[Call, ...]:
    waits: dict[str, Any] = {"before": (awaiting.slot,)}
    return (
        Call(
            method="POST",
            path="/v1/wake",
            endpoint=api.wake,
            scope="wake",
            takes=WakeRequest,
            errors=(409, 429),
            **waits,
        ),
        Call(path="/v1/runs", endpoint=api.list_runs, scope="read", errors=(422,)),
        Call(path="/v1/counts", endpoint=api.count_runs, scope="read"),
        Call(path=RUN, endpoint=api.show_run, scope="read", errors=(404, 422, 429), **waits),
        Call(path=f"{RUN}/entries", endpoint=api.list_entries, scope="read", errors=(404, 422)),
        Call(path=f"{RUN}/workspace", endpoint=api.list_files, scope="read", errors=(404,)),
        Call(
            path=f"{RUN}/workspace/{{path:path}}",
            endpoint=api.download_file,
            scope="read",
            errors=(404, 409),
            answers=Response,
        ),
        *_calls_to_runs(api),
    )


def _calls_to_runs(api: RunCalls) -> Iterator[Call]:
    """What changes a run."""
    control: dict[str, Any] = {"method": "POST", "scope": "control", "errors": (404, 409)}
    yield Call(path=f"{RUN}/cancel", endpoint=api.cancel_run, takes=CancelRequest, **control)
    yield Call(path=f"{RUN}/signals", endpoint=api.signal_run, takes=SignalRequest, **control)
    yield Call(path=f"{RUN}/approvals", endpoint=api.rule_on_run, takes=ApprovalRequest, **control)
    yield Call(path=f"{RUN}/answers", endpoint=api.answer_run, takes=AnswerRequest, **control)


def _event_streams(streams: EventStreams) -> tuple[Call, ...]:
    return (
        Call(
            path=f"{RUN}/events",
            endpoint=streams.follow_run,
            scope="read",
            errors=(404, 422, 429),
            answers=EventStream,
            before=(streams.slots.take, streams.can_follow_run),
        ),
        Call(
            path="/v1/events",
            endpoint=streams.follow_all,
            scope="read",
            errors=(422, 429),
            answers=EventStream,
            before=(streams.slots.take, streams.can_follow_all),
        ),
    )


def _calls_for_operators(operations: Operations) -> tuple[Call, ...]:
    inspection, inbox, letters = operations.inspection, operations.inbox, operations.letters
    act: dict[str, Any] = {"method": "POST", "scope": "control", "takes": Nothing, "errors": (404, 409)}
    switch, stopping = {**act, "errors": ()}, operations.stopping
    return (
        Call(path=f"{RUN}/timeline", endpoint=inspection.show_timeline, scope="read", errors=(404,)),
        Call(path=f"{RUN}/steps/{{step}}", endpoint=inspection.show_step, scope="read", errors=(404, 422)),
        Call(path=f"{RUN}/calls/{{call}}", endpoint=inspection.show_call, scope="read", errors=(404, 422)),
        Call(path=f"{RUN}/why", endpoint=operations.why.show_why, scope="read", errors=(404,)),
        Call(path="/v1/health", endpoint=operations.health.show_health, scope="read"),
        Call(path="/v1/tools", endpoint=operations.tools.list_tools, scope="read"),
        Call(path="/v1/inbox", endpoint=inbox.show_inbox, scope="read", errors=(422,)),
        Call(path=f"{RUN}/dismiss", endpoint=inbox.dismiss_run, **act),
        Call(path=LETTERS, endpoint=letters.list_letters, scope="read", errors=(422, 503)),
        Call(path=f"{LETTERS}/{{seq}}/retry", endpoint=letters.retry_letter, **act),
        Call(path=f"{LETTERS}/{{seq}}/discard", endpoint=letters.discard_letter, **act),
        Call(path="/v1/stop-all", endpoint=stopping.stop_all, **{**switch, "takes": StopRequest}),
        Call(path="/v1/go-on", endpoint=stopping.go_on, **switch),
        Call(path="/v1/drain", endpoint=operations.draining.show_drain, scope="read"),
        Call(path="/v1/prune", endpoint=operations.pruning.prune, **{**switch, "takes": PruneRequest}),
        Call(path="/v1/drain", endpoint=operations.draining.drain, **{**switch, "takes": DrainRequest}),
    )


def _calls_on_the_service(service: ServiceCalls, whoami: Whoami) -> tuple[Call, ...]:
    return (
        Call(path="/v1/whoami", endpoint=whoami.whoami, scope="read"),
        Call(path="/healthz", endpoint=service.healthz, scope=None),
        Call(path="/readyz", endpoint=service.readyz, scope=None),
        Call(path="/metrics", endpoint=service.metrics, scope="read", answers=PlainTextResponse),
        Call(path="/openapi.json", endpoint=service.openapi, scope="read", shown=False),
        Call(path="/docs", endpoint=service.docs, scope="read", answers=HTMLResponse, shown=False),
    )


def _calls_for_the_page(page: Page) -> tuple[Call, ...]:
    return (
        Call(path="/", endpoint=page.index, scope=None, answers=Response, shown=False),
        Call(path=f"{ROOT}{{path:path}}", endpoint=page.file, scope=None, answers=Response, shown=False),
    )


def _add(app: FastAPI, access: Access, call: Call, fresh: Fresh) -> None:
    by_token = [access.to(call.scope)] if call.scope else []
    shows = (fresh,) if call.method == "GET" and call.path.startswith(OF_RUNS) else ()
    errors = {*call.errors, *((401, 403) if call.scope else ()), *(http_errors.OF_A_BODY if call.takes else ())}
    errors |= {410} if call.path.startswith(RUN) else set()
    app.add_api_route(
        call.path,
        call.endpoint,
        methods=[call.method],
        status_code=202 if call.takes else 200,
        dependencies=[*by_token, *map(Depends, (*shows, *call.before))],
        response_class=call.answers,
        responses=http_errors.documented(*sorted(errors)),
        openapi_extra=documented(call.takes) if call.takes else None,
        include_in_schema=call.shown,
    )
