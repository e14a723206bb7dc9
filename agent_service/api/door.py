"""Checks every request before any route, and hardens every response.

DNS rebinding is refused by the Host header; pages of other sites by Origin or Sec-Fetch-Site. There is no CORS.
Probes may use any name: those who send them (a kubelet, a balancer) often know only an address.
"""

import asyncio
from collections.abc import Collection

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_service.api import errors as http_errors
from agent_service.api import page
from agent_service.api.errors import HARDENED
from agent_service.api.refusals import Refusal
from groundwork.http.bodies import PROBES, has_a_path, host, only

READING = frozenset({"GET", "HEAD", "OPTIONS"})
CALLS = ("/v1/", "/metrics")
ELSEWHERE = frozenset({"cross-site", "same-site"})
"""Of Sec-Fetch-Site; another port of this machine is the same site, and still another's."""
STOPS = "the agent stops, and what was asked for may have been done or not: ask again once it is back"


class Door:
    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str]) -> None:
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        app = http_errors.answer(refusal, scope) if refusal else self._app
        answering = _Answering(send, scope["path"])
        try:
            await app(scope, receive, answering)
        except asyncio.CancelledError:  # the process ends
            if answering.begun:
                raise
            stopped = Refusal(503, "try_again", STOPS, retry_after_s=2.0)
            await http_errors.answer(stopped, scope)(scope, receive, answering)

    def _refusal(self, scope: Scope) -> Refusal | None:
        if not has_a_path(scope):
            return Refusal(404, "not_found", "there is nothing at this path")
        if host(scope) not in self._allowed and scope["path"] not in PROBES:
            return Refusal(
                421, "wrong_host", "this service does not answer to this Host: add it to `http.allowed_hosts`"
            )
        if _is_of_another_site(scope):
            return Refusal(403, "foreign_origin", "pages of other sites may ask nothing here")
        return None


def _is_of_another_site(scope: Scope) -> bool:
    if scope["method"] in READING and not scope["path"].startswith(CALLS):
        return False
    if any(name == b"origin" for name, _ in scope["headers"]):
        return only(scope, b"origin").partition("://")[2] != only(scope, b"host")
    return only(scope, b"sec-fetch-site") in ELSEWHERE


class _Answering:
    """Sends an answer, hardened. `begun`: whether it has its status already."""

    def __init__(self, send: Send, path: str) -> None:
        self._send = send
        self._said = HARDENED | page.HEADERS if page.is_of_the_page(path) else HARDENED
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            MutableHeaders(raw=message["headers"]).update(self._said)
        await self._send(message)
