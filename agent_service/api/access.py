"""Checks Host, Origin and token of each request before its route, and hardens each response.

The Host header rules out DNS rebinding; Origin and Sec-Fetch-Site rule out pages of other sites. There is no CORS.
Tokens have scopes, and are looked up by the SHA-256 of what was sent: the time of a look-up tells about a digest, from
which no token follows. Without a configured token the API is open to everybody on this machine, so it then listens on
loopback only.
"""

import asyncio
import hashlib
import time
from collections.abc import Collection
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer, SecurityScopes
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from agent_service.admission.callers import ApiSettings, TokenSettings, token_caller
from agent_service.api.errors import MEDIA_TYPE, ApiError, Code
from agent_service.api.requests import EVERY_SCOPE, Caller, check_scopes
from agent_service.trust import identity
from groundwork.http import PROBES, host, os_user, single_header
from groundwork.telemetry.metrics import OTHER, Histogram, Instruments

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
        if not connection["path"].isprintable():  # a route would match in spite of a line feed at the end
            return ApiError(Code.NOT_FOUND, "there is nothing at this path")
        if host(connection) not in self._allowed and connection["path"] not in PROBES:
            text = "this service does not answer to this Host: add it to `agent.http.allowed_hosts`"
            return ApiError(Code.WRONG_HOST, text)
        if _is_of_another_site(connection):
            return ApiError(Code.FOREIGN_ORIGIN, "requests from pages of other sites are refused")
        return None


def _is_of_another_site(connection: Connection) -> bool:
    if connection["method"] in READING and not connection["path"].startswith(CALLS):
        return False
    if b"origin" in dict(connection["headers"]):  # two values match no page of ours
        return single_header(connection, "origin").partition("://")[2] != single_header(connection, "host")
    return single_header(connection, "sec-fetch-site") in OTHER_SITES


_BEARER = HTTPBearer(auto_error=False, scheme_name="token", description="A token of this service.")


class Access:
    """Grants routes by token, as their dependency."""

    def __init__(self, settings: ApiSettings) -> None:
        self._bearers = settings.bearers()

    async def __call__(self, request: Request, asked: SecurityScopes, _: Annotated[object, Depends(_BEARER)]) -> None:
        """Sets `request.state.token` and `scopes`. Refuses callers without the scopes that are asked for (401, 403)."""
        request.state.token, request.state.scopes = None, EVERY_SCOPE
        if self._bearers:
            bearer = self._known(request.headers.getlist("authorization"))
            if bearer is None:
                raise ApiError(Code.UNAUTHORIZED, "send `Authorization: Bearer <token>` with a token of this service")
            request.state.token, request.state.scopes = bearer.name, bearer.scopes
            check_scopes(bearer.name, bearer.scopes, asked.scopes)

    def _known(self, sent: list[str]) -> TokenSettings | None:
        token = sent[0].removeprefix(SCHEME) if len(sent) == 1 and sent[0].startswith(SCHEME) else ""
        return self._bearers.get(hashlib.sha256(token.encode("latin-1")).hexdigest())


async def caller_of(request: Request) -> Caller:
    token, user = request.state.token, os_user(request.scope)
    payer = token_caller(token) if token else ""
    by = identity.by(payer, f"os user {user}" if user else "") or UNKNOWN
    return Caller(by=by, payer=payer, transport="http", token=token, scopes=request.state.scopes)
