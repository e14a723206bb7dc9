"""Connections to a Ductile: for questions, and for starts. No proxy of the environment.

Each start has a connection of its own, so that one which the other side has closed in the meantime cannot make a call
doubtful. It is reset when it is closed: else the kernel would go on for minutes to send what has not left yet, of a
call that is long said never to have arrived.
"""

import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from ductile_gateway.ductile.settings import DuctileSettings

CONNECT_WITHIN_S = 3.0
_RESET_AT_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@asynccontextmanager
async def open_clients(
    settings: DuctileSettings, transport: httpx2.AsyncBaseTransport | None
) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.AsyncClient]]:
    """Clients for questions and for starts. `transport`: in place of the network."""
    tls = _tls(settings)
    looks = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5.0)
    once = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    asking = transport or httpx2.AsyncHTTPTransport(verify=tls, limits=looks, trust_env=False)
    starting = transport or httpx2.AsyncHTTPTransport(
        verify=tls, limits=once, trust_env=False, socket_options=[_RESET_AT_CLOSE]
    )
    async with _client(settings, asking) as http, _client(settings, starting) as starts:
        yield http, starts


def _client(settings: DuctileSettings, transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=settings.url,
        headers={"Authorization": f"Bearer {settings.token.get_secret_value()}"},
        timeout=httpx2.Timeout(settings.request_timeout_s, connect=CONNECT_WITHIN_S),
        transport=transport,
        trust_env=False,
    )


def _tls(settings: DuctileSettings) -> ssl.SSLContext:
    """Reading the machine's certificates takes a tenth of a second: not where there is no TLS to be spoken. A context
    that knows none trusts nobody."""
    is_needed = settings.url.startswith("https:")
    return ssl.create_default_context() if is_needed else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
