"""Who a caller is to this service, and which service it is."""

from typing import get_args

from fastapi import Request

from agent_service.caller_settings import Scope
from agent_service.settings import AgentSettings
from agent_service.telling.view import View
from groundwork.service.installed import installed_version
from groundwork.service.store_id import known_id


class WhoView(View):
    """`caller` is the name of the token, or `everybody` where no token is needed (`tokens` says so).

    `store` is the id of the agent's store, `member` the name of this agent where several share one, else null;
    `trace_url` is where a trace is shown, with `{trace_id}` in it, or null.
    """

    caller: str
    scopes: tuple[Scope, ...]
    tokens: bool
    version: str
    store: str
    member: str | None
    trace_url: str | None


class Whoami:
    """Its docstring is the API's documentation."""

    def __init__(self, settings: AgentSettings, member: str | None = None) -> None:
        self._settings = settings
        self._member = member
        self._store = known_id(settings.store)

    async def whoami(self, request: Request) -> WhoView:
        """Who calls, what they may do, and which service answers."""
        granted = request.state.scopes
        return WhoView(
            caller=request.state.caller,
            scopes=tuple(scope for scope in get_args(Scope) if scope in granted),
            tokens=bool(self._settings.http.tokens),
            version=installed_version(),
            store=self._store,
            member=self._member,
            trace_url=self._settings.trace_url,
        )
