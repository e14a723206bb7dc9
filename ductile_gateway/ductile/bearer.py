"""The token of Ductile's API, put into each request as it is then: it may stand in a file that changes."""

from collections.abc import Generator

import httpx2
from pydantic import SecretStr


class Bearer(httpx2.Auth):
    """Inherits because the client takes nothing else."""

    def __init__(self, token: SecretStr) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        yield request
