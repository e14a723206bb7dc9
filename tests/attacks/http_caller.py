"""HTTP client for the API, ours and an unprotected twin's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.attacks.services import TOKENS
from tests.http.wire import send

JSON = {"Content-Type": "application/json"}
WITHIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCaller:
    """An address and the caller's token, if any."""

    url: str
    protected: bool
    token: str | None = None
    sent: Mapping[str, str] = field(default_factory=dict)
    """Headers of every request."""

    def as_(self, name: str | None) -> "HttpCaller":
        """Returns a client with the token of that name, or with none."""
        return HttpCaller(url=self.url, protected=self.protected, token=TOKENS[name] if name else None, sent=self.sent)

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    async def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx2.Response:
        """Sends one request. `headers` replace those of the client."""
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}
        all_of_them = {**bearer, **self.sent, **(headers or {})}
        raw = {name.encode(): value.encode("latin-1") for name, value in all_of_them.items()}
        async with httpx2.AsyncClient(base_url=self.url, verify=False, trust_env=False, timeout=WITHIN_S) as client:
            return await client.request(method, path, headers=raw, **more)

    async def get(self, path: str, **more: Any) -> httpx2.Response:
        return await self.ask("GET", path, **more)

    async def begin(self, goal: str, **more: Any) -> str:
        """Starts a run and returns its id."""
        answer = await self.ask("POST", "/v1/wake", json={"goal": goal, **more})
        assert answer.status_code == httpx2.codes.ACCEPTED, answer.text
        return str(answer.json()["run_id"])

    async def raw(self, request: str) -> str:
        """Sends bytes and returns everything until the server closes the connection or falls silent."""
        return (await send(self.port, request)).text
