"""The HTTP API: FastAPI routes from the table of operations, and the checks and parameters of their requests.

A request passes the access check (Host, Origin), then token and scope, then parameters and body. FastAPI would parse a
declared body before the token is checked, so bodies are dependencies here. Only JSON in plain UTF-8 is read, which also
refuses the forms that a browser could post for another site. Nothing is decompressed.

The Host header rules out DNS rebinding; Origin and Sec-Fetch-Site rule out pages of other sites. There is no CORS.
Tokens have scopes, and are looked up by the SHA-256 of what was sent: the time of a look-up tells about a digest, from
which no token follows. Without a configured token the API is open to everybody on this machine, so it then listens on
loopback only.

Idempotency-Key (draft-ietf-httpapi-idempotency-key-header) is a quoted string, also accepted without quotes. It becomes
the `wake_id` or `signal_id`, as long as the run is known. Where the API has tokens, keys of two tokens never collide.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Header, Query, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPBearer, SecurityScopes
from pydantic import BaseModel, Field
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from agent_service.api import requests
from agent_service.api.errors import IDEMPOTENCY_KEY, MEDIA_TYPE, REFUSED, ApiError, Code, broken, refusal_of, unfit
from agent_service.api.feed import LAST_EVENT_ID, EventStream, StreamSlots
from agent_service.api.micro import Fresh, Served, body_model, served_by
from agent_service.api.openapi import Documents
from agent_service.api.os_user import os_user
from agent_service.api.requests import EVERY_SCOPE, MAX_BODY_BYTES, Caller, LongPoll, check_scopes, misfits
from agent_service.run.children import WAKE_PREFIX
from agent_service.run.intake import id_of
from agent_service.settings import AgentSettings, ApiSettings, token_caller
from agent_service.trust import identity
from groundwork.http import PROBES, BodyReader, BodyRefused, host, single_header
from groundwork.telemetry.metrics import OTHER, Histogram, Instruments
from schemas.operations import OPERATIONS, Operation

FOLDER = Path(__file__).resolve().parents[1] / "page"
LONGEST_KEY = 255
LONGEST_WAIT_S = 300.0
JSON = "application/json"

M = TypeVar("M", bound=BaseModel)

_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"')
_PLAIN = re.compile(r"[!#-\[\]-~]+")

READING = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = READING | {"POST", "PUT", "DELETE", "PATCH"}
UNMEASURED = PROBES | {"/metrics"}
CALLS = ("/v1/", "/metrics")
PAGE = "/page"
OTHER_SITES = frozenset({"cross-site", "same-site"})
"""Refused values of Sec-Fetch-Site: another port of this machine is `same-site`, but belongs to someone else."""
STOPS = "the agent stops, and what was asked for may have been done or not: ask again once it is back"
UNKNOWN = "http"
SCHEME = "Bearer "

HARDENED = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every response: no caching, type sniffing, scripts or frames. Styles are for /docs, which has no script.
"""
PAGE_HEADERS = HARDENED | {
    "cache-control": "no-cache",  # browsers revalidate before each use, so a newer agent shows at once
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
}
"""The page runs scripts and styles of this origin only; no string becomes script or markup."""


def create_app(
    services: Iterable[object],
    settings: AgentSettings,
    instruments: Instruments,
    *,
    operations: Iterable[Operation] = OPERATIONS,
    fresh: Fresh = None,
) -> FastAPI:
    """Raises Misconfigured for settings that would open the API to other machines."""
    documents = Documents()
    app, access, served = documents.app, Access(settings.http), (*services, documents)
    app.state.bodies, app.state.slots = BodyReader(MAX_BODY_BYTES), StreamSlots()
    for kind in (*REFUSED, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(Exception, _broken)
    durations = request_durations(instruments)
    app.add_middleware(AccessMiddleware, allowed_hosts=settings.http.allowed_hosts, durations=durations)
    for operation in operations:
        if operation.path:
            _add(documents, access, operation, served_by(served, operation), fresh)
    app.add_route("/", _index)
    app.mount(PAGE, StaticFiles(directory=FOLDER))
    return app


async def _index(_: Request) -> Response:
    return FileResponse(FOLDER / "index.html")


def _add(documents: Documents, access: "Access", operation: Operation, served: Served, fresh: Fresh) -> None:
    app, parameters, answers = documents.app, signature(served).parameters, signature(served).return_annotation
    waits, streams = "wait" in parameters, "last_event_id" in parameters
    path = operation.path.replace("{path}", "{path:path}")
    before = [Security(access, scopes=[operation.scope])] if operation.scope else []
    before += [Depends(fresh)] if fresh and operation.shows_runs else []
    if path.startswith("/v1/") and not (waits or "query" in parameters):  # a scraper may send what it likes to others
        before.append(Depends(_nothing))
    if streams or waits:
        before.append(Depends(app.state.slots.take if streams else _wait))  # before the body is read
    app.add_api_route(
        path,
        _endpoint(operation, served),
        methods=[operation.method],
        status_code=operation.status,
        dependencies=before,
        response_class=EventStream if streams else answers if issubclass(answers, Response) else JSONResponse,
        **documents.describe(operation, body_model(served), answers, limited=streams or waits),
    )


def _endpoint(operation: Operation, served: Served) -> Any:
    """The function for FastAPI, whose signature names the sources of parameters and the type of the answer."""

    async def with_status(response: Response, **given: Any) -> Any:
        answer = await served(**given)
        response.status_code = answer.http_status
        return answer

    reads, kind = signature(served), Parameter.KEYWORD_ONLY
    asked = [one.replace(kind=kind, annotation=_source(one)) for one in reads.parameters.values()]
    endpoint: Any = partial(served)
    if hasattr(reads.return_annotation, "http_status"):
        endpoint, asked = with_status, [Parameter("response", kind, annotation=Response), *asked]
    endpoint.__signature__ = Signature(asked, return_annotation=reads.return_annotation)
    endpoint.__name__, endpoint.__doc__ = operation.name, served.__doc__
    return endpoint


def _source(parameter: Parameter) -> Any:
    kind = parameter.annotation
    match parameter.name:
        case "request":
            return Annotated[kind, Depends(body_of(kind))]
        case "query":
            return Annotated[kind, Query()]
        case name:
            return _SOURCES.get(name, kind)


def answer(refusal: ApiError, connection: Connection, headers: dict[str, str] | None = None) -> JSONResponse:
    refusal.log(getattr(connection.get("endpoint"), "__name__", None), connection.get("state", {}).get("token"))
    headers = refusal.headers | (headers or {})
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.status in (408, 413, 415):
        headers["Connection"] = "close"  # without reading the rest of the body
    return JSONResponse(refusal.body(), refusal.status, headers=headers, media_type=MEDIA_TYPE)


def request_durations(instruments: Instruments) -> Histogram:
    text, of_a_request = "Requests over HTTP, without probes and streams", ("http.route", "http.response.status_code")
    return instruments.histogram("http.server.request.duration", text, "http.request.method", *of_a_request)


class AccessMiddleware:
    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str], durations: Histogram) -> None:
        self._app = app
        self._allowed = allowed_hosts
        self._durations = durations

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        path, began, status, kind = connection["path"], time.perf_counter(), 0, ""
        if path in PROBES and connection["method"] == "HEAD":  # the server sends no body for it
            connection = {**connection, "method": "GET"}
        headers = PAGE_HEADERS if path == "/" or path.startswith(f"{PAGE}/") else HARDENED

        async def hardened(message: Message) -> None:
            nonlocal status, kind
            if message["type"] == "http.response.start":
                sent = MutableHeaders(raw=message["headers"])
                sent.update(headers)
                status, kind = message["status"], sent.get("content-type", "")
            await send(message)

        refusal = self._refusal(connection)
        app = answer(refusal, connection) if refusal else self._app
        try:
            await app(connection, receive, hardened)
        except asyncio.CancelledError:  # the process ends
            if status:
                raise
            stopped = ApiError(Code.TRY_AGAIN, STOPS, retry_after_s=2.0)
            await answer(stopped, connection)(connection, receive, hardened)
        finally:
            if path not in UNMEASURED and not kind.startswith("text/event-stream"):
                method = connection["method"] if connection["method"] in METHODS else OTHER
                route = str(getattr(connection.get("route"), "path", ""))
                self._durations.record(time.perf_counter() - began, method, route, str(status or 500))

    def _refusal(self, connection: Connection) -> ApiError | None:
        path = connection["path"]
        if not path.isprintable():  # a route would match in spite of a line feed at the end
            return ApiError(Code.NOT_FOUND, "there is nothing at this path")
        if host(connection) not in self._allowed and path not in PROBES:
            text = "this service does not answer to this Host: add it to `agent.http.allowed_hosts`"
            return ApiError(Code.WRONG_HOST, text)
        if b"origin" in dict(connection["headers"]):  # two values match no page of ours
            is_foreign = single_header(connection, "origin").partition("://")[2] != single_header(connection, "host")
        else:
            is_foreign = single_header(connection, "sec-fetch-site") in OTHER_SITES
        if is_foreign and (path.startswith(CALLS) or connection["method"] not in READING):
            return ApiError(Code.FOREIGN_ORIGIN, "requests from pages of other sites are refused")
        return None


_BEARER = HTTPBearer(auto_error=False, scheme_name="token", description="A token of this service.")


class Access:
    """Grants routes by token, as their dependency."""

    def __init__(self, settings: ApiSettings) -> None:
        self._bearers = settings.bearers()

    async def __call__(self, request: Request, asked: SecurityScopes, _: Annotated[object, Depends(_BEARER)]) -> None:
        """Sets `request.state.token` and `scopes`. Refuses callers without the scopes that are asked for (401, 403)."""
        request.state.token, request.state.scopes = None, EVERY_SCOPE
        if self._bearers:
            sent = request.headers.getlist("authorization")
            token = sent[0].removeprefix(SCHEME) if len(sent) == 1 and sent[0].startswith(SCHEME) else ""
            bearer = self._bearers.get(hashlib.sha256(token.encode("latin-1")).hexdigest())
            if bearer is None:
                raise ApiError(Code.UNAUTHORIZED, "send `Authorization: Bearer <token>` with a token of this service")
            request.state.token, request.state.scopes = bearer.name, bearer.scopes
            check_scopes(bearer.name, bearer.scopes, asked.scopes)


async def caller_of(request: Request) -> Caller:
    token, user = request.state.token, os_user(request.scope)
    payer = token_caller(token) if token else ""
    by = identity.by(payer, f"os user {user}" if user else "") or UNKNOWN
    return Caller(by=by, payer=payer, transport="http", token=token, scopes=request.state.scopes)


async def _nothing(_: Annotated[requests.Query, Query()]) -> None:
    """Refuses query parameters (422)."""


class WaitQuery(requests.Query):
    """The longest time that the caller waits."""

    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)] = 0.0
    """Answer once the run has ended or waits for a person, and after so many seconds at the latest."""


async def _wait(request: Request, query: Annotated[WaitQuery, Query()]) -> AsyncIterator[LongPoll | None]:
    """Holds a slot for a caller that waits. Refuses with 429."""
    if not query.wait:
        yield None
        return

    async def hung_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    async for _ in request.app.state.slots.take(request):
        yield LongPoll(query.wait, hung_up)


def body_of(model: type[M]) -> Callable[[Request], Coroutine[Any, Any, M]]:
    """Dependency that reads the body as `model`. Refuses with 400, 408, 413, 415 and 422."""

    async def body(request: Request) -> M:
        headers, bodies = request.headers, request.app.state.bodies
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise ApiError(Code.ENCODED, "send the body as it is, without Content-Encoding")
        kinds = headers.getlist("content-type")
        has_body = headers.get("content-length", "") not in ("", "0") or "transfer-encoding" in headers
        is_json = len(kinds) == 1 and kinds[0].partition(";")[0].strip().lower() == JSON
        if (kinds or has_body) and not is_json:
            raise ApiError(Code.NOT_JSON, f"send JSON, with `Content-Type: {JSON}`", status=415)
        try:
            sent = await bodies.read(request)
        except BodyRefused as error:
            raise ApiError(Code[error.code.upper()], str(error)) from error
        return requests.read(model, sent)

    return body


async def idempotency_key(
    request: Request,
    caller: Annotated[Caller, Depends(caller_of)],
    sent: Annotated[
        str | None,
        Header(
            alias=IDEMPOTENCY_KEY,
            description="The same key with the same body is the same request, however often it is sent; with another "
            "body it is refused. It counts where the body names itself by no `wake_id` or `signal_id`.",
            examples=['"8e03978e-40d5-43dd-bc93-6894a57f9324"'],
        ),
    ] = None,
) -> str | None:
    """The key as an id, or None. Refuses an illegal key (422)."""
    if sent is None:
        return None
    quoted, payer = _QUOTED.fullmatch(sent), caller.payer
    is_repeated = len(request.headers.getlist(IDEMPOTENCY_KEY)) > 1
    if is_repeated or len(sent) > LONGEST_KEY or not (quoted or _PLAIN.fullmatch(sent)):
        why = f'must be one quoted string of visible ASCII, of {LONGEST_KEY} characters at most, such as "a-1"'
        raise unfit(IDEMPOTENCY_KEY, why)
    key = quoted[1] if quoted else sent
    return id_of(f"{IDEMPOTENCY_KEY} {payer} {key}") if payer or key.startswith(WAKE_PREFIX) else id_of(key)


_SOURCES: Mapping[str, Any] = {
    "caller": Annotated[Caller, Depends(caller_of)],
    "key": Annotated[str | None, Depends(idempotency_key)],
    "last_event_id": Annotated[str | None, Header(alias=LAST_EVENT_ID, description="The `id` of the last event seen.")],
    "traceparent": Annotated[str | None, Header(description="A trace of the caller's, to be linked.")],
    "wait": Annotated[LongPoll | None, Depends(_wait)],
}
"""Sources of parameters by name; all others are parts of the path."""


async def _refused(request: Request, error: Exception) -> JSONResponse:
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else None
    return answer(_refusal_of(error), request.scope, headers)


def _refusal_of(error: Exception) -> ApiError:
    match error:
        case RequestValidationError():  # without `query` before the name
            return misfits([(flaw["loc"][1:], flaw["msg"], flaw["type"]) for flaw in error.errors()])
        case HTTPException(status_code=404):
            return ApiError(Code.NOT_FOUND, "there is nothing at this path: see /docs")
        case HTTPException(status_code=405):
            return ApiError(Code.METHOD_NOT_ALLOWED, "this path takes other methods: see the header Allow")
        case HTTPException():
            return ApiError(Code.REFUSED, str(error.detail), status=error.status_code)
    return refusal_of(error)


async def _broken(request: Request, _: Exception) -> JSONResponse:
    """The framework raises the error again, so that the server logs it. Middleware does not see this response."""
    return answer(broken(), request.scope, HARDENED)
