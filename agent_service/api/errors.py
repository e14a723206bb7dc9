"""Errors of the HTTP API: problems (RFC 9457), without an echo of what was sent."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import Scope

from agent_service.api import requests
from agent_service.api.refusals import MEDIA_TYPE, REFUSED, Code, Problem, Refusal, SeenToTheEnd, broken, refusal_of

log = logging.getLogger(__name__)

HARDENED = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""What every response says to browsers: keep nothing, guess no type, run nothing, be framed by nobody.

Styles are for the page at /docs, which has no script."""

OF_A_BODY = (400, 408, 413, 415, 422, 503)

_OF_THE_FRAMEWORK: dict[int, tuple[Code, str]] = {
    404: ("not_found", "there is nothing at this path: see /docs"),
    405: ("method_not_allowed", "this path takes other methods: see the header Allow"),
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    which: tuple[int | str, ...] = (*statuses, "default")
    return {status: {"$ref": f"#/components/responses/{_name(status)}"} for status in which}


def problems() -> dict[str, Any]:
    return {_name(status): _problem(meaning, Refusal(*refused)) for status, (meaning, refused) in _MEANINGS.items()}


def _name(status: int | str) -> str:
    return f"Problem{status}" if isinstance(status, int) else "Problem"


def _problem(meaning: str, refusal: Refusal) -> dict[str, Any]:
    example = refusal.body() | {"instance": "urn:uuid:5a5f3ba6-5fd5-4a21-9a28-3a6b8b4a6e0f"}
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    return {"description": meaning, "content": {MEDIA_TYPE: {"schema": schema, "example": example}}}


def answer(refusal: Refusal, scope: Scope, headers: dict[str, str] | None = None) -> JSONResponse:
    call, caller = getattr(scope.get("endpoint"), "__name__", None), scope.get("state", {}).get("caller")
    facts = {"status": refusal.status, "code": refusal.code, "field": refusal.field, "call": call, "caller": caller}
    facts["instance"] = refusal.instance
    log.log(logging.WARNING if refusal.status >= 500 else logging.INFO, "refused", extra=facts)
    told = _headers(refusal) | (headers or {})
    return JSONResponse(refusal.body(), refusal.status, headers=told, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    handlers: dict[type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
        **dict.fromkeys(REFUSED, _refused),
        SeenToTheEnd: _nothing_more,
        RequestValidationError: _invalid,
        HTTPException: _by_framework,
        Exception: _broken,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _headers(refusal: Refusal) -> dict[str, str]:
    headers = {}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.status in (408, 413, 415):
        headers["Connection"] = "close"  # the rest of the body is not worth reading
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(refusal.retry_after_s)))
    return headers


async def _refused(request: Request, error: Exception) -> JSONResponse:
    return answer(refusal_of(error), request.scope)


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    flaws = [(flaw["loc"][1:], flaw["msg"], flaw["type"]) for flaw in error.errors()]  # without `query` before the name
    return answer(requests.unfit(flaws), request.scope)


async def _by_framework(request: Request, error: HTTPException) -> JSONResponse:
    code, message = _OF_THE_FRAMEWORK.get(error.status_code, ("refused", str(error.detail)))
    return answer(Refusal(error.status_code, code, message), request.scope, dict(error.headers or {}))


async def _nothing_more(_: Request, _error: SeenToTheEnd) -> Response:
    return Response(status_code=204)


async def _broken(request: Request, _: Exception) -> JSONResponse:
    """The framework raises the error again, so that the server logs it. No door is left on this way out."""
    return answer(broken(), request.scope, HARDENED)


_MEANINGS: dict[int | str, tuple[str, tuple[int, Code, str]]] = {
    400: ("The body is not strict JSON", (400, "not_json", "the body is not JSON: expected value at line 1 column 1")),
    401: (
        "No token of this service was sent",
        (401, "unauthorized", "send `Authorization: Bearer <token>` with a token of this service"),
    ),
    403: (
        "The token has not the scope that this call needs",
        (403, "forbidden", "token dashboard has no scope `control`"),
    ),
    404: ("There is no such thing", (404, "unknown_run", "there is no run of this id")),
    408: ("The body came too slowly", (408, "too_slow", "the body came too slowly")),
    409: ("It stands otherwise", (409, "run_has_ended", "the run has ended already: it is done")),
    410: ("The run is kept no longer", (410, "gone", "the run was kept for 90 days after its end")),
    413: ("The body is too large", (413, "too_large", "the body has more than 262144 bytes")),
    415: ("The body is no plain JSON", (415, "not_json", "send JSON, with `Content-Type: application/json`")),
    422: ("A field does not fit, or asks for more than is granted", (422, "invalid", "goal: must not be blank")),
    429: (
        "A quota is spent, or too many event streams are open",
        (429, "too_many_streams", "16 event streams are open for this token: close one, or come back later"),
    ),
    503: (
        "Nothing was stored: come back later",
        (503, "try_again", "not done, and nothing was stored: the bus is away"),
    ),
    "default": ("Refused, or failed", (500, "broken", "the agent failed at this request; its log says how")),
}
