"""Who may call the HTTP API: bearer tokens with scopes, compared by their SHA-256 in constant time.

Without a configured token the API is open to everybody on this machine, so it then listens on loopback only.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, get_args

from fastapi import Depends, Request, Security
from fastapi.params import Depends as Dependency
from fastapi.security import HTTPBearer, SecurityScopes

from agent_service.admission.callers import HttpSettings, Scope, of_token
from agent_service.api.refusals import Refusal
from agent_service.trust import identity
from groundwork.http.os_user import os_user
from groundwork.service.address import is_loopback
from groundwork.service.errors import Misconfigured

LONGEST_TOKEN = 512
UNKNOWN = "http"
EVERYBODY = "everybody"
EVERY_SCOPE = frozenset(get_args(Scope))
SCHEME = "Bearer "


@dataclass(frozen=True, slots=True)
class Bearer:
    name: str
    scopes: frozenset[Scope]
    digest: Callable[[], str]


class Access:
    """Decides whether a request may do what its route does. Raises Misconfigured where everybody would be let in."""

    def __init__(self, settings: HttpSettings) -> None:
        self._bearers = tuple(Bearer(t.name, t.scopes, t.digest) for t in settings.tokens)
        _refuse_shared(self._bearers)
        if not self._bearers and not is_loopback(settings.host):
            raise Misconfigured(
                f"the HTTP API would listen on {settings.host} for everybody: configure `http.tokens`, "
                "or listen on 127.0.0.1"
            )
        self._check = self._dependency()

    def to(self, scope: Scope) -> Dependency:
        """A dependency that refuses (401, 403) callers without `scope`. Sets `request.state.caller`, and `scopes`."""
        dependency: Dependency = Security(self._check, scopes=[scope])
        return dependency

    def _dependency(self) -> Callable[..., Awaitable[None]]:
        shown = HTTPBearer(auto_error=False, scheme_name="token", description="A token of this service.")

        async def check(request: Request, asked: SecurityScopes, _: Annotated[object, Depends(shown)]) -> None:
            request.state.caller, request.state.token = EVERYBODY, None
            request.state.scopes = EVERY_SCOPE
            if self._bearers:
                self._check_bearer(request, asked.scopes)

        return check

    def _check_bearer(self, request: Request, asked: list[str]) -> None:
        bearer = self._known(request.headers.getlist("authorization"))
        request.state.caller = request.state.token = bearer and bearer.name
        if bearer is None:
            raise Refusal(401, "unauthorized", "send `Authorization: Bearer <token>` with a token of this service")
        request.state.scopes = bearer.scopes
        _require(request, *asked)

    def _known(self, sent: list[str]) -> Bearer | None:
        if len(sent) != 1 or not sent[0].startswith(SCHEME) or len(sent[0]) > LONGEST_TOKEN:
            return None
        digest = hashlib.sha256(sent[0].removeprefix(SCHEME).encode("latin-1")).hexdigest()
        found = [bearer for bearer in self._bearers if hmac.compare_digest(bearer.digest(), digest)]
        return found[0] if found else None


def require_reading(request: Request) -> None:
    """Refuses (403) a caller who may not be shown runs, where a route does that only if it is asked to."""
    _require(request, "read")


def _require(request: Request, *scopes: str) -> None:
    if not request.state.scopes.issuperset(scopes):
        raise Refusal(403, "forbidden", f"token {request.state.token} has no scope `{' '.join(scopes)}`")


async def who(request: Request) -> str:
    token, user = request.state.token, os_user(request.scope)
    return identity.by(f"token {token}" if token else "", f"os user {user}" if user else "") or UNKNOWN


async def whose(request: Request) -> str:
    return of_token(request.state.token)


Payer = Annotated[str, Depends(whose)]
Caller = Annotated[str, Depends(who)]


def _refuse_shared(bearers: tuple[Bearer, ...]) -> None:
    holders: dict[str, str] = {}
    for bearer in bearers:
        other = holders.setdefault(bearer.digest(), bearer.name)
        if other != bearer.name:
            raise Misconfigured(f"http.tokens {other} and {bearer.name} are the same token: give each its own")
