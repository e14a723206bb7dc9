"""Remedy of a failed model call, by HTTP status and the provider's code; the same for all providers.

wait, and ask again     408 409 425 429 499 5xx, no connection, timeout, unreadable answer
pause for a person      402, an exhausted spend limit or quota: it does not recover by itself
leave it to a person    a prompt that the provider's rules forbid
shrink the prompt       413, a prompt longer than the model's window, or than a minute's tokens
fail, with the remedy   401 403 404, every other 4xx: the configuration or this program is wrong
"""

import re

import httpx2

from agent_service.core.asking import LONGEST_WAIT_S
from agent_service.errors import ModelError

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


def status_of(kind: str) -> int:
    """HTTP status that the error would have had before the stream; some servers send just that as its type."""
    return _IN_A_STREAM.get(kind) or (int(kind) if re.fullmatch(r"[45]\d\d", kind) else 500)


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
