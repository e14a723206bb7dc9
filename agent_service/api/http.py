"""The HTTP API: FastAPI routes from the table of operations, and the sources of their parameters.

A request passes the access check (Host, Origin), then token and scope, then parameters and body. FastAPI would parse a
declared body before the token is checked, so bodies are dependencies here. Only JSON in plain UTF-8 is read, which also
refuses the forms that a browser could post for another site. Nothing is decompressed.

Idempotency-Key (draft-ietf-httpapi-idempotency-key-header) is a quoted string, also accepted without quotes. It becomes
the `wake_id` or `signal_id`, as long as the run is known. Where the API has tokens, keys of two tokens never collide.
"""

import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, FastAPI, Header, Query, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from agent_service.api import requests
from agent_service.api.access import HARDENED, PAGE, Access, AccessMiddleware, answer, caller_of, request_durations
from agent_service.api.errors import IDEMPOTENCY_KEY, REFUSED, ApiError, Code, broken, refusal_of, unfit
from agent_service.api.feed import LAST_EVENT_ID, EventStream, StreamSlots
from agent_service.api.micro import Fresh, Served, body_model, served_by
from agent_service.api.openapi import DESCRIBED, Documents, documented, first_sentence
from agent_service.api.requests import MAX_BODY_BYTES, Caller, LongPoll, misfits
from agent_service.run.children import WAKE_PREFIX
from agent_service.run.intake import id_of
from agent_service.settings import AgentSettings
from groundwork.http import BodyReader, BodyRefused
from groundwork.telemetry.metrics import Instruments
from schemas.operations import OPERATIONS, Operation

FOLDER = Path(__file__).resolve().parents[1] / "page"
LONGEST_KEY = 255
LONGEST_WAIT_S = 300.0
JSON = "application/json"

M = TypeVar("M", bound=BaseModel)

_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"')
_PLAIN = re.compile(r"[!#-\[\]-~]+")


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


def _add(documents: Documents, access: Access, operation: Operation, served: Served, fresh: Fresh) -> None:
    app = documents.app
    parameters, body, answers = signature(served).parameters, body_model(served), signature(served).return_annotation
    waits, streams = "wait" in parameters, "last_event_id" in parameters
    path = operation.path.replace("{path}", "{path:path}")
    before = [Security(access, scopes=[operation.scope])] if operation.scope else []
    before += [Depends(fresh)] if fresh and operation.shows_runs else []
    if path.startswith("/v1/") and not (waits or "query" in parameters):  # a scraper may send what it likes to others
        before.append(Depends(_nothing))
    if streams or waits:
        before.append(Depends(app.state.slots.take if streams else _slot))
    app.add_api_route(
        path,
        _endpoint(operation, served),
        methods=[operation.method],
        status_code=operation.status,
        dependencies=before,
        response_class=EventStream if streams else answers if issubclass(answers, Response) else JSONResponse,
        summary=operation.does[0].upper() + operation.does[1:],
        response_description=first_sentence(answers.__doc__),
        tags=[operation.tag],
        responses=documented(operation, body, limited=streams or waits) | DESCRIBED.get(operation.name, {}),
        openapi_extra=documents.describe(operation, body),
        include_in_schema=operation.listed,
    )


def _endpoint(operation: Operation, served: Served) -> Callable[..., Any]:
    """The function for FastAPI, whose signature names the sources of parameters and the type of the answer."""

    async def endpoint(response: Response, **given: Any) -> Any:
        answer = await served(**given)
        if status := getattr(answer, "http_status", None):
            response.status_code = status
        return answer

    reads = signature(served)
    asked = [one.replace(kind=Parameter.KEYWORD_ONLY, annotation=_source(one)) for one in reads.parameters.values()]
    first = Parameter("response", Parameter.KEYWORD_ONLY, annotation=Response)
    cast("Any", endpoint).__signature__ = Signature([first, *asked], return_annotation=reads.return_annotation)
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


async def _nothing(_: Annotated[requests.Query, Query()]) -> None:
    """Refuses query parameters (422)."""


class WaitQuery(requests.Query):
    """The longest time that the caller waits."""

    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)] = 0.0
    """Answer once the run has ended or waits for a person, and after so many seconds at the latest."""


async def _wait(request: Request, query: Annotated[WaitQuery, Query()]) -> LongPoll | None:
    async def hung_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return LongPoll(query.wait, hung_up) if query.wait else None


async def _slot(request: Request, wait: Annotated[LongPoll | None, Depends(_wait)]) -> AsyncIterator[None]:
    """Holds a slot for a caller that waits. Refuses with 429."""
    if wait is None:
        yield
        return
    async for _ in request.app.state.slots.take(request):
        yield


def body_of(model: type[M]) -> Callable[[Request], Coroutine[Any, Any, M]]:
    """Dependency that reads the body as `model`. Refuses with 400, 408, 413, 415 and 422."""

    async def body(request: Request) -> M:
        _check_headers(request)
        bodies: BodyReader = request.app.state.bodies
        try:
            sent = await bodies.read(request)
        except BodyRefused as error:
            raise ApiError(Code[error.code.upper()], str(error)) from error
        return requests.read(model, sent)

    return body


def _check_headers(request: Request) -> None:
    headers = request.headers
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(Code.ENCODED, "send the body as it is, without Content-Encoding")
    length = headers.get("content-length", "")
    kinds = headers.getlist("content-type")
    has_body = length not in ("", "0") or "transfer-encoding" in headers
    if (kinds or has_body) and [kind.partition(";")[0].strip().lower() for kind in kinds] != [JSON]:
        raise ApiError(Code.NOT_JSON, f"send JSON, with `Content-Type: {JSON}`", status=415)


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
