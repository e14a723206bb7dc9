"""Transport over the agent's micro service on the bus, `agentic-loop.*`, for commands and the view of one run."""

import asyncio
import json
import ssl
from contextlib import suppress
from typing import Any

from nats import errors
from nats.aio.client import Client
from nats.micro.request import ERROR_CODE_HEADER

from agentic_client.calls import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, Json, Path, Query
from agentic_client.errors import Broken, Invalid, NotAllowed, Unreachable, refused
from schemas.bounded import json_object
from schemas.operations import Operation

REFUSED = "authorization"
REFUSED_FOR_S = 1.0


class NatsTransport:
    def __init__(self, servers: str, options: dict[str, Any], tls: ssl.SSLContext | None) -> None:
        self._servers = servers.split(",")
        self._names = ", ".join(server.rpartition("://")[2].rpartition("@")[2] for server in self._servers)
        fixed = {"name": "agentic-client", "max_reconnect_attempts": -1, "error_cb": self._note}
        self._options = options | fixed | ({"tls": tls} if tls else {})
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._within: asyncio.Timeout | None = None
        self._denied = ""

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def ask(self, operation: Operation, path: Path, body: Json | None, query: Query) -> Json:  # noqa: ARG002 # it answers at once
        async with self._connecting:
            if self._client is None or self._client.is_closed:
                self._client = await self._connect()
        subject, asked, self._denied = operation.subject, json.dumps({**path, **(body or {})}).encode(), ""
        try:
            answer = await self._client.request(subject, asked, timeout=ANSWER_TIMEOUT_S)
        except errors.NoRespondersError as error:
            raise Unreachable(f"no agent answers {subject} on the bus now") from error
        except errors.MaxPayloadError as error:
            text = f"the request has {len(asked)} bytes, and the bus takes {self._client.max_payload} at most"
            raise Invalid(text, code="too_large", status=413) from error
        except (errors.Error, OSError) as error:
            if subject.lower() in self._denied:
                text = f"the login may not publish to {subject}: give one of the role operator (docs/BUS.md)"
                raise NotAllowed(text, status=403) from error
            raise Unreachable(f"no answer to {subject} on the bus ({type(error).__name__}): ask again") from error
        found, headers = json_object(answer.data), answer.headers or {}
        if code := headers.get(ERROR_CODE_HEADER):
            raise refused(int(code) if code.isdecimal() else 500, found, retry_after=headers.get("Retry-After"))
        if found is None:
            raise Broken("what answers on the bus is not an agent: see who else listens to agentic-loop.*")
        return found

    async def _connect(self) -> Client:
        client, self._denied = Client(), ""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S) as self._within:
                await client.connect(self._servers, **self._options)
        except TimeoutError as error:
            with suppress(Exception):
                await client.close()
            if REFUSED in self._denied:
                raise NotAllowed(f"NATS at {self._names} refuses the login ({self._denied})", status=401) from error
            because = f" ({self._denied})" if self._denied else ""
            text = f"no NATS server answers at {self._names}{because}: start it, or give another address"
            raise Unreachable(text, silent_s=CONNECT_TIMEOUT_S) from error
        except Exception as error:  # what the client makes of odd addresses and keys
            text = f"the address or login of NATS at {self._names} cannot be used ({type(error).__name__})"
            raise NotAllowed(text) from error
        finally:
            self._within = None
        return client

    async def _note(self, error: Exception) -> None:
        self._denied = str(error).lower()
        if REFUSED in self._denied and self._within:
            self._within.reschedule(asyncio.get_running_loop().time() + REFUSED_FOR_S)
