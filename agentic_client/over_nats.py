"""The agent's micro service on the bus, `agentic-loop.*`: the same answers as those of the HTTP API.

There is no stream of events on it: a journal is asked for again and again, and each of its entries is told once.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.request import ERROR_CODE_HEADER

from agentic_client.errors import Broken, NotAllowed, Unreachable, refused
from agentic_client.transport import SILENT_AT_MOST_S, Filters, Json
from agentic_client.views import FINAL
from schemas import subjects
from schemas.bounded import LARGEST_FILE, Bounded, TooLong, json_of

CONNECT_WITHIN_S = 5.0
LOOK_AGAIN_S = 0.25
NAME = "agentic-client"
REFUSED = "authorization"
"""What the server, and the library, say of a login that is none."""
REFUSED_FOR_S = 1.0
"""By then the library has closed the connection, and has not begun another."""


class OverNats:
    """Fills Transport. `servers` are those of one cluster, separated by commas; it connects when it is first used."""

    def __init__(self, servers: str, options: dict[str, Any], tls: ssl.SSLContext | None) -> None:
        self._servers = servers.split(",")
        self._options = options | ({"tls": tls} if tls else {})
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._within: asyncio.Timeout | None = None
        """What connecting has to be done within, while it is under way."""
        self._denied = ""

    async def wake(self, body: Json) -> Json:
        return await self._ask("wake", body)

    async def run(self, run_id: str, wait_s: float) -> Json:  # noqa: ARG002 # answers come one at a time, so at once
        return await self._ask("status", {"run_id": run_id})

    async def runs(self, filters: Filters) -> Json:
        return await self._ask("runs", dict(filters))

    async def say(self, run_id: str, what: str, body: Json) -> Json:
        return await self._ask(what, {"run_id": run_id, **body})

    async def entries(self, run_id: str, after: int) -> AsyncGenerator[Json, None]:
        while True:
            page = await self._ask("entries", {"run_id": run_id, "after": after})
            for entry in page["entries"]:
                after = entry["seq"]
                yield entry
            if page["next_after"] is None:
                if page["status"] in FINAL:
                    return
                await asyncio.sleep(LOOK_AGAIN_S)

    async def tools(self) -> Json:
        return await self._ask("tools", {})

    async def files(self, run_id: str) -> Json:
        return await self._ask("files", {"run_id": run_id})

    async def read(self, run_id: str, path: str) -> bytes:
        content = Bounded(LARGEST_FILE)
        while True:
            piece = await self._ask("file", {"run_id": run_id, "path": path, "offset": len(content)})
            try:
                content.add(base64.b64decode(piece["content"]))
            except TooLong as error:
                raise Broken(f"what answers on the bus sends a file of {error}, which no agent does") from error
            if len(content) >= piece["size"]:
                return bytes(content)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _ask(self, endpoint: str, body: Json) -> Json:
        client, subject = await self._connected(), f"{subjects.SERVICE_AGENT}.{endpoint}"
        self._denied = ""
        try:
            answer = await client.request(subject, json.dumps(body).encode(), timeout=SILENT_AT_MOST_S)
        except errors.NoRespondersError as error:
            raise Unreachable(f"nobody answers {subject} on the bus: no agent is connected to it now") from error
        except (errors.Error, OSError) as error:
            if subject.lower() in self._denied:
                text = f"the login may not publish to {subject}: give one of the role operator (docs/BUS.md)"
                raise NotAllowed(text, status=403) from error
            raise Unreachable(f"no answer to {subject} on the bus ({type(error).__name__}): ask again") from error
        return _told(answer)

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._client is None or self._client.is_closed:
                self._client = await self._connect()
        return self._client

    async def _connect(self) -> Client:
        client, self._denied = Client(), ""
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S) as self._within:
                await client.connect(
                    self._servers, name=NAME, max_reconnect_attempts=-1, error_cb=self._note, **self._options
                )
        except TimeoutError as error:
            with suppress(Exception):
                await client.close()
            if REFUSED in self._denied:
                raise NotAllowed(f"the NATS server refuses the login ({self._denied})", status=401) from error
            text = f"no NATS server answers{self._because()}: is it running, is it there?"
            raise Unreachable(text, silent_s=CONNECT_WITHIN_S) from error
        except (errors.Error, OSError, ValueError, AttributeError) as error:  # what the client makes of odd addresses
            raise NotAllowed(
                f"the address or login of the NATS server cannot be used ({type(error).__name__})"
            ) from error
        finally:
            self._within = None
        return client

    def _because(self) -> str:
        return f" ({self._denied})" if self._denied else ""

    async def _note(self, error: Exception) -> None:
        """What the server says outside of answers; its text names a subject, and no secret."""
        self._denied = str(error).lower()
        if REFUSED in self._denied and self._within:
            self._within.reschedule(asyncio.get_running_loop().time() + REFUSED_FOR_S)


def _told(answer: Msg) -> Json:
    found = json_of(answer.data)
    if code := (answer.headers or {}).get(ERROR_CODE_HEADER):
        raise refused(int(code) if code.isdecimal() else 500, found)
    if not isinstance(found, dict):
        raise Broken("what answers on the bus is no agent: see who else listens to agentic-loop.*")
    return found
