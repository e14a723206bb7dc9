"""The HTTP API: its table of calls, each with the scope that it needs, what it takes and how it can refuse.

Order of a request: the door (Host, Origin), the token and its scope, then parameters and body.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fastapi import Depends, FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel

from agent_service.admission.callers import Scope
from agent_service.api import errors as http_errors
from agent_service.api.access import Access
from agent_service.api.body import documented, only
from agent_service.api.desk import Desk, Fresh, at_once
from agent_service.api.door import Door
from agent_service.api.handlers.dead_letters import DeadLetterCalls
from agent_service.api.handlers.inbox import InboxCalls
from agent_service.api.handlers.inspection import Inspection, WhyCalls
from agent_service.api.handlers.operating import DrainCalls, PruneCalls, StoppingCalls
from agent_service.api.handlers.runs import BYTES, TYPES, RunCalls
from agent_service.api.handlers.service import HealthCalls, MetricsText, Readiness, Ready, ServiceCalls, Whoami
from agent_service.api.handlers.tools import ToolCalls
from agent_service.api.openapi import ABOUT, LICENSE, TITLE, VERSION, Tag, tags
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
    WakeAnswer,
    WakeRequest,
)
from agent_service.api.streams.awaiting import Awaiting
from agent_service.api.streams.events import EventStream, EventStreams
from agent_service.settings import AgentSettings
from agent_service.views.folder.keeping import Folders
from groundwork.http.bodies import Bodies
from groundwork.service.store_folder import known_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    inspection: Inspection
    inbox: InboxCalls
    letters: DeadLetterCalls
    health: HealthCalls
    why: WhyCalls
    stopping: StoppingCalls
    draining: DrainCalls
    pruning: PruneCalls
    tools: ToolCalls


RUN = "/v1/runs/{run_id}"
LETTERS = "/v1/dead-letters"

OF_RUNS = ("/v1/runs", "/v1/counts", "/v1/inbox", "/v1/events")

A_FILE = {
    "description": "The file as it is; its media type goes by the suffix of its name.",
    "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (BYTES, *TYPES.values())},
}
EVENTS = {"description": "An event for each entry, and a comment now and then while there is none."}
METRICS = {"description": "The text that Prometheus reads."}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`scope`: null for everybody. `takes`: body of a POST. `also`: answers by status beyond the endpoint's type."""

    method: Literal["GET", "POST"] = "GET"
    path: str
    endpoint: Callable[..., Any]
    scope: Scope | None
    takes: type[BaseModel] | None = None
    tag: Tag = "service"
    errors: tuple[int, ...] = ()
    answers: type[Response] = JSONResponse
    before: tuple[Callable[..., Any], ...] = ()
    also: Mapping[int | str, dict[str, Any]] = field(default_factory=dict)
    shown: bool = True
    finished: bool = False
    """Whether what a POST asks for is done when it is answered (200); else it is only accepted (202)."""

    @property
    def status(self) -> int:
        return 202 if self.takes and not self.finished else 200


def create_app(
    desk: Desk,
    files: Folders,
    readiness: Readiness,
    settings: AgentSettings,
    *,
    operations: Operations,
    streams: EventStreams,
    metrics: MetricsText,
    fresh: Fresh = at_once,
    member: str | None = None,
) -> FastAPI:
    """Raises Misconfigured for settings that would open it to the world. `fresh`: waited for before runs are shown."""
    app = FastAPI(
        title=TITLE,
        version=VERSION,
        description=ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        license_info=LICENSE,
        servers=[{"url": "/", "description": "The agent that this document is of"}],
        openapi_tags=tags(),
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
        *_looks_into_runs(operations.inspection, operations.why),
        *_calls_for_people(operations.inbox, operations.letters),
        *_calls_for_operators(operations),
        *_event_streams(streams),
        *_calls_on_the_service(service, Whoami(settings, member)),
        *_calls_for_the_page(Page()),
    ):
        _add(app, access, call, fresh)
    return app


def _calls_on_runs(api: RunCalls, awaiting: Awaiting) -> tuple[Call, ...]:
    of: dict[str, Any] = {"tag": "runs", "scope": "read"}
    waits = of | {"before": (only("wait"), awaiting.slot)}
    return (
        Call(
            method="POST",
            path="/v1/wake",
            endpoint=api.wake,
            takes=WakeRequest,
            errors=(409, 429),
            also={200: {"model": WakeAnswer, "description": "The run was waited for, and has ended."}},
            **{**waits, "scope": "wake"},
        ),
        Call(path="/v1/runs", endpoint=api.list_runs, errors=(422,), **of),
        Call(path="/v1/counts", endpoint=api.count_runs, **of),
        Call(path=RUN, endpoint=api.show_run, errors=(404, 422, 429), **waits),
        Call(path=f"{RUN}/entries", endpoint=api.list_entries, errors=(404, 422), **of),
        Call(path=f"{RUN}/workspace", endpoint=api.list_files, errors=(404,), **of),
        Call(
            path=f"{RUN}/workspace/{{path:path}}",
            endpoint=api.download_file,
            errors=(404, 409),
            answers=Response,
            also={200: A_FILE},
            **of,
        ),
        *_calls_to_runs(api),
    )


def _calls_to_runs(api: RunCalls) -> Iterator[Call]:
    control: dict[str, Any] = {"method": "POST", "tag": "people", "scope": "control", "errors": (404, 409)}
    control["before"] = (only(),)
    yield Call(path=f"{RUN}/cancel", endpoint=api.cancel_run, takes=CancelRequest, **control)
    yield Call(path=f"{RUN}/signals", endpoint=api.signal_run, takes=SignalRequest, **control)
    yield Call(path=f"{RUN}/approvals", endpoint=api.rule_on_run, takes=ApprovalRequest, **control)
    yield Call(path=f"{RUN}/answers", endpoint=api.answer_run, takes=AnswerRequest, **control)


def _event_streams(streams: EventStreams) -> tuple[Call, ...]:
    of: dict[str, Any] = {"tag": "runs", "scope": "read", "answers": EventStream}
    return (
        Call(
            path=f"{RUN}/events",
            endpoint=streams.follow_run,
            errors=(404, 422, 429),
            before=(streams.slots.take, streams.can_follow_run),
            also={200: EVENTS, 204: {"description": "The reader has seen the run to its end."}},
            **of,
        ),
        Call(
            path="/v1/events",
            endpoint=streams.follow_all,
            errors=(422, 429),
            before=(streams.slots.take, streams.can_follow_all),
            also={200: EVENTS},
            **of,
        ),
    )


def _looks_into_runs(inspection: Inspection, why: WhyCalls) -> tuple[Call, ...]:
    of: dict[str, Any] = {"tag": "insight", "scope": "read"}
    return (
        Call(path=f"{RUN}/timeline", endpoint=inspection.show_timeline, errors=(404,), **of),
        Call(path=f"{RUN}/steps/{{step}}", endpoint=inspection.show_step, errors=(404, 422), **of),
        Call(path=f"{RUN}/calls/{{call}}", endpoint=inspection.show_call, errors=(404, 422), **of),
        Call(path=f"{RUN}/why", endpoint=why.show_why, errors=(404,), **of),
    )


def _calls_for_people(inbox: InboxCalls, letters: DeadLetterCalls) -> tuple[Call, ...]:
    of: dict[str, Any] = {"tag": "people", "scope": "read"}
    act: dict[str, Any] = {"method": "POST", "takes": Nothing, "errors": (404, 409), "before": (only(),)}
    of_letters = {**act, "tag": "dead letters", "scope": "operate"}
    return (
        Call(path="/v1/inbox", endpoint=inbox.show_inbox, errors=(422,), **of),
        Call(path=f"{RUN}/dismiss", endpoint=inbox.dismiss_run, tag="people", scope="control", **act),
        Call(path=LETTERS, endpoint=letters.list_letters, errors=(422, 503), **{**of, "tag": "dead letters"}),
        Call(path=f"{LETTERS}/{{seq}}/retry", endpoint=letters.retry_letter, **of_letters),
        Call(path=f"{LETTERS}/{{seq}}/discard", endpoint=letters.discard_letter, **of_letters),
    )


def _calls_for_operators(operations: Operations) -> tuple[Call, ...]:
    of: dict[str, Any] = {"tag": "operation", "scope": "read"}
    switch: dict[str, Any] = {"method": "POST", "tag": "operation", "scope": "operate", "before": (only(),)}
    stopping, draining = operations.stopping, operations.draining
    return (
        Call(path="/v1/health", endpoint=operations.health.show_health, **of),
        Call(path="/v1/tools", endpoint=operations.tools.list_tools, **of),
        Call(path="/v1/stop-all", endpoint=stopping.stop_all, takes=StopRequest, **switch),
        Call(path="/v1/go-on", endpoint=stopping.go_on, takes=Nothing, **switch),
        Call(path="/v1/drain", endpoint=draining.show_drain, **of),
        Call(path="/v1/drain", endpoint=draining.drain, takes=DrainRequest, **switch),
        Call(path="/v1/prune", endpoint=operations.pruning.prune, takes=PruneRequest, finished=True, **switch),
    )


def _calls_on_the_service(service: ServiceCalls, whoami: Whoami) -> tuple[Call, ...]:
    not_ready = {"model": Ready, "description": "Not ready: `checks` says of what."}
    return (
        Call(path="/v1/whoami", endpoint=whoami.whoami, scope="read"),
        Call(path="/healthz", endpoint=service.healthz, scope=None),
        Call(path="/readyz", endpoint=service.readyz, scope=None, also={503: not_ready}),
        Call(path="/metrics", endpoint=service.metrics, scope="read", answers=PlainTextResponse, also={200: METRICS}),
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
        status_code=call.status,
        dependencies=[*by_token, *map(Depends, (*shows, *call.before))],
        response_class=call.answers,
        tags=[call.tag],
        responses={**http_errors.documented(*sorted(errors)), **call.also},
        openapi_extra=(documented(call.takes) if call.takes else {}) | ({} if call.scope else {"security": []}),
        include_in_schema=call.shown,
    )
