"""What Anthropic's Messages API refuses, as far as a request of ours could run into it (API version 2026-10-21).

Each rule is a function that raises Rejected. The wording is the vendor's where it is known.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.models import schema_rules
from tests.models.tokens import blocks
from tests.models.wire import Body, Rejected

_PROMPT = {"model", "max_tokens", "system", "messages", "tools", "tool_choice", "output_config", "thinking", "metadata"}
_SERVICE = {"service_tier", "speed", "stop_sequences", "stream", "inference_geo", "container", "context_management"}
FIELDS = _PROMPT | _SERVICE | {"cache_control", "diagnostics"}
EFFORTS = ("low", "medium", "high", "xhigh", "max")
MOST_BREAKPOINTS = 4
MOST_OUTPUT_TOKENS = 128_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Of one model."""

    least_cached: int = 512
    """Tokens of a prompt's beginning below which it is not cached."""
    may_not_think: bool = False
    """Whether thinking can be turned off, at an effort of high or below."""


MODELS = {
    "claude-sonnet-5-5": Abilities(),
    "claude-opus-5-5": Abilities(),
    "claude-fable-5-2": Abilities(),
    "claude-haiku-5-5": Abilities(least_cached=4096, may_not_think=True),
}


def check_headers(headers: dict[str, str], key: str) -> None:
    """`headers` have lower-case names."""
    if headers.get("authorization") != f"Bearer {key}":
        raise Rejected("invalid bearer token", 401, "authentication_error")
    if "anthropic-version" not in headers:
        raise Rejected("anthropic-version: header is required")


def check(body: Body) -> None:
    """Raises Rejected for the first rule that `body` breaks."""
    unknown = sorted(body.keys() - FIELDS)
    sampling = [name for name in ("temperature", "top_p", "top_k") if name in body]
    if sampling:
        raise Rejected(f"{sampling[0]}: sampling parameters are not supported for this model")
    if unknown:
        raise Rejected(f"{unknown[0]}: Extra inputs are not permitted")
    for rule in _RULES:
        rule(body)


def _check_model(body: Body) -> None:
    if body.get("model") not in MODELS:
        raise Rejected(f"model: {body.get('model')}", 404, "not_found_error")


def _check_max_tokens(body: Body) -> None:
    most = body.get("max_tokens")
    if not isinstance(most, int):
        raise Rejected("max_tokens: Field required")
    if not 0 < most <= MOST_OUTPUT_TOKENS:
        raise Rejected(f"max_tokens: {most} > {MOST_OUTPUT_TOKENS}, the maximum allowed number of output tokens")


def _check_messages(body: Body) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Rejected("messages: at least one message is required")
    if any(message.get("role") not in ("user", "assistant") for message in messages):
        raise Rejected("messages: Input should be 'user' or 'assistant'")
    if messages[-1]["role"] == "assistant":
        why = "This model does not support assistant message prefill"
        raise Rejected(f"{why}. The conversation must end with a user message.")


def _check_texts(body: Body) -> None:
    said = [block for message in body["messages"] for block in blocks(message.get("content"))]
    texts = [block.get("text", "") for block in (*blocks(body.get("system")), *said) if block.get("type") == "text"]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise Rejected("text content blocks must contain non-whitespace text")


def _check_tool_choice(body: Body) -> None:
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        raise Rejected('tool_choice: type "tool" and "any" are not supported for this model.')


def _check_thinking(body: Body) -> None:
    kind = (body.get("thinking") or {}).get("type")
    effort = (body.get("output_config") or {}).get("effort")
    off = MODELS[body["model"]].may_not_think and effort not in ("xhigh", "max")
    if kind == "enabled" or (kind == "disabled" and not off):
        raise Rejected(f'thinking.type: "{kind}" is not supported for {body["model"]}')


def _check_output(body: Body) -> None:
    output = body.get("output_config") or {}
    effort, output_format = output.get("effort"), output.get("format")
    if effort is not None and effort not in EFFORTS:
        raise Rejected(f"output_config.effort: Input should be one of {', '.join(EFFORTS)}")
    if output_format is None:
        return
    if output_format.get("type") != "json_schema" or not isinstance(output_format.get("schema"), dict):
        raise Rejected("output_config.format: Input should be a json_schema with a schema")
    try:
        schema_rules.check(output_format["schema"])
    except schema_rules.Refused as refused:
        raise Rejected(f"output_config.format.schema: {refused}") from refused


def _check_breakpoints(body: Body) -> None:
    said = [block for message in body["messages"] for block in blocks(message.get("content"))]
    marked = (*(body.get("tools") or ()), *blocks(body.get("system")), *said)
    controls = [block["cache_control"] for block in marked if block.get("cache_control")]
    if len(controls) > MOST_BREAKPOINTS:
        raise Rejected(f"A maximum of 4 blocks with cache_control may be provided. Found {len(controls)}.")
    lives = [control.get("ttl", "5m") for control in controls]
    if any(ttl not in ("5m", "1h") for ttl in lives):
        raise Rejected("cache_control.ttl: Input should be '5m' or '1h'")
    if "1h" in lives and "5m" in lives[: len(lives) - lives[::-1].index("1h")]:
        raise Rejected("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block.")


_RULES: tuple[Callable[[Body], None], ...] = (
    _check_model,
    _check_max_tokens,
    _check_messages,
    _check_texts,
    _check_tool_choice,
    _check_thinking,
    _check_output,
    _check_breakpoints,
)
