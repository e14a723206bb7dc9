"""HTTP client of a model's SDK (no environment proxies, no redirects), and its event streams.

The timeout applies to silence only.
"""

import json
import socket
import ssl
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import httpx2

from agent_service.models.settings import CONNECT_WITHIN_S, OF_ENVIRONMENT, ModelSettings
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import is_address, keeps_secrets, without_login

usual_authorities = cache(ssl.create_default_context)
"""Loaded once: that takes a twentieth of a second."""

_KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 0x10), 60),  # macOS calls 0x10 TCP_KEEPALIVE
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
]
SCHEMES = {"base_url": ("http", "https"), "proxy": ("http", "https", "socks5", "socks5h")}
LONGEST_LINE = 16 * 1024 * 1024
MOST_QUOTED = 100
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)


def client_options(settings: ModelSettings) -> dict[str, Any]:
    """Options of both SDKs. Raises Misconfigured for an address that no request can go to."""
    for name, schemes in SCHEMES.items():
        address = getattr(settings, name)
        if address not in (None, OF_ENVIRONMENT) and not is_address(address, *schemes):
            shown = without_login(address)
            raise Misconfigured(f"agent.model.{name} {shown!r} is not an address, such as https://host:8080")
    return {
        "max_retries": 0,
        "timeout": httpx2.Timeout(settings.timeout_s, connect=CONNECT_WITHIN_S),
        "base_url": settings.base_url,
        "http_client": _connection(settings.proxy),
    }


def _connection(proxy: str | None) -> httpx2.AsyncClient:
    of_both: dict[str, Any] = {"verify": usual_authorities(), "limits": _LIMITS}
    if proxy == OF_ENVIRONMENT:
        return httpx2.AsyncClient(trust_env=True, **of_both)
    try:
        transport = httpx2.AsyncHTTPTransport(trust_env=False, proxy=proxy, socket_options=_KEEP_ALIVE, **of_both)
    except ImportError as error:
        raise Misconfigured("agent.model.proxy needs a package for SOCKS: pip install socksio") from error
    return httpx2.AsyncClient(transport=transport, trust_env=False)


def check_transport(settings: ModelSettings, address: str) -> None:
    """Refuses plain HTTP for a key. `address`: the one in use, which SDKs also take from the environment. Raises
    Misconfigured.
    """
    if settings.api_key is None or settings.allow_http_nonloopback or keeps_secrets(address):
        return
    why = "the key would go over plain http to another machine, and could be read on the way"
    remedy = "use https, or set agent.model.allow_http_nonloopback"
    raise Misconfigured(f"agent.model.base_url {without_login(address)}: {why}: {remedy}")


class SaidError(Exception):
    """Error in the middle of a stream. `kind`: the provider's name of it."""

    def __init__(self, error: object) -> None:
        fields = error if isinstance(error, dict) else {"message": error}
        super().__init__(str(fields.get("message") or error))
        self.kind = str(fields.get("type") or fields.get("code") or "")


async def events(body: Any) -> AsyncIterator[dict[str, Any]]:
    """Events of the SDK's streaming response. Raises SaidError, and ValueError for invalid JSON or no event at all."""
    rest, other, found = bytearray(), b"", False
    async for chunk in _with_line_end(body):
        rest += chunk
        *lines, rest = rest.split(b"\n") if b"\n" in chunk else [rest]
        if len(rest) > LONGEST_LINE:
            raise ValueError(f"one line of the stream has more than {LONGEST_LINE} bytes")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            event = json.loads(data) if line.startswith(b"data:") and data != b"[DONE]" else None
            if isinstance(event, dict):  # others are unknown
                if error := event.get("error"):
                    raise SaidError(error)
                found = True
                yield event
            else:
                other = other or bytes(data)
    if not found:
        raise ValueError(f"it is no stream of events; it begins {other[:MOST_QUOTED].decode(errors='replace')!r}")


async def _with_line_end(body: Any) -> AsyncIterator[bytes]:
    async for chunk in body.iter_bytes():  # the SDK's own reader ends lines at characters that JSON texts may hold
        yield chunk
    yield b"\n"
