"""HTTP client of a model's SDK (no environment proxies, no redirects), its event streams, and the remedies of failed
calls, which are the same for all providers: docs/CONFIGURATION.md#when-the-model-gives-no-answer.

The timeout applies to silence only. An unknown error is the configuration's or ours: the run fails.
"""

import json
import re
import socket
import ssl
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import httpx2

from agent_service.core.asking import LONGEST_WAIT_S
from agent_service.errors import ModelError
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
NO_KEY = "no-key-is-set"
MOST_MESSAGE = 500

SPENT = frozenset(
    {
        *("enforced_spend_limit_reached", "contract_spend_limit_reached"),
        *("insufficient_quota", "billing_hard_limit_reached", "billing_not_active"),
    }
)
SPENT_SAID = "credit balance is too low"
FORBIDDEN = frozenset({"content_filter", "content_policy_violation", "invalid_prompt"})
TOO_LONG = frozenset({"context_length_exceeded", "prompt_too_long"})
TOO_LONG_SAID = (
    *("prompt is too long", "maximum context length", "exceeds the available context size"),
    "exceed context limit",  # Anthropic's older models: the prompt with `max_tokens`
    "Request too large for",  # OpenAI, with 429: longer than a minute's tokens, so waiting does not help
)
"""Messages of servers that have no code for it."""
AGAIN = frozenset({408, 409, 425, 429, 499})

_FAILS: dict[int, tuple[str, str]] = {
    401: ("model_auth", "check the key: agent.model.api_key, or the provider's variable in the environment"),
    403: ("model_auth", "give the key access to this model, or choose another in agent.model.model"),
    404: ("model_not_found", "correct agent.model.model (the id may be misspelt or retired) or agent.model.base_url"),
    **dict.fromkeys(
        (301, 302, 303, 307, 308),
        ("model_not_found", "redirects are not followed: set agent.model.base_url to the address itself"),
    ),
}
_BAD_REQUEST = ("model_bad_request", "the model does not take this request: try another model or effort, or report it")
_IN_A_STREAM = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}
"""HTTP status of an error in the middle of a stream, by its type."""
_NOT_MADE = (
    *(httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError),
    *(httpx2.WriteError, httpx2.WriteTimeout, httpx2.LocalProtocolError, httpx2.UnsupportedProtocol),
)
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)


def signed_options(settings: ModelSettings) -> dict[str, Any]:
    """Options with the key of the settings, which goes before that of ANTHROPIC_CUSTOM_HEADERS or
    OPENAI_CUSTOM_HEADERS in the environment."""
    key = settings.api_key.get_secret_value() if settings.api_key else NO_KEY
    return {**client_options(settings), "api_key": key, "default_headers": {"Authorization": f"Bearer {key}"}}


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
    """Error in the middle of a stream. `kind`: the provider's name of it; `status`: that of HTTP, which it would have
    had before the stream. Some servers send just that as its type."""

    def __init__(self, error: object) -> None:
        fields = error if isinstance(error, dict) else {"message": error}
        super().__init__(str(fields.get("message") or error))
        self.kind = kind = str(fields.get("type") or fields.get("code") or "")
        self.status = _IN_A_STREAM.get(kind) or (int(kind) if re.fullmatch(r"[45]\d\d", kind) else 500)


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


# Remedies


def was_made(error: Exception) -> bool:
    """True if the request left as a whole: it may have been processed, and cost."""
    cause = error.__cause__ or error
    return isinstance(cause, httpx2.TransportError) and not isinstance(cause, _NOT_MADE)


def by_status(
    status: int,
    *,
    code: str | None,
    message: str,
    retry_after_s: float | None = None,
    request_id: str | None = None,
) -> ModelError:
    """`code`: the provider's name of the cause."""
    text = f"HTTP {status}{f' {code}' if code else ''}: {message[:MOST_MESSAGE]}"
    text += f" (request {request_id})" if request_id else ""
    if code in SPENT or status == 402 or SPENT_SAID in message:
        why = f"{text}; raise the limit at the provider, then resume the run"
        return ModelError("pause", "model_spend_limit", why)
    if code in FORBIDDEN:
        return ModelError("escalate", "model_refused", text)
    if status == 413 or code in TOO_LONG or (status in (400, 429) and any(said in message for said in TOO_LONG_SAID)):
        return ModelError("shrink", "prompt_too_long", text)
    if status == 429:
        return ModelError("try_again", "rate_limit", text, retry_after_s)
    if status in AGAIN or status >= 500:
        error_class = "overloaded" if status in (503, 529) else "model_unavailable"
        return ModelError("try_again", error_class, text, retry_after_s)
    error_class, remedy = _FAILS.get(status, _BAD_REQUEST)
    return ModelError("fail", error_class, f"{text}; {remedy}")


def cause_of(error: Exception) -> str:
    """Text of an error below the SDK. An unsendable request is not quoted: its headers hold the key."""
    cause = error.__cause__ or error
    quoted = "" if isinstance(cause, httpx2.LocalProtocolError) else str(cause)
    return f"{type(cause).__name__} {quoted}".strip()


def retry_after_s(header: str | None) -> float | None:
    """Seconds of a `retry-after` header; None without one, for a date, which no model provider sends, and for more than
    a run would wait: all runs would wait as long."""
    try:
        seconds = float(header) if header else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds <= LONGEST_WAIT_S else None
