"""What OpenAI's chat completions refuse, by the SDK's types, the vendor's documentation and its error messages."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from tests.models.tokens import canonical
from tests.models.wire import Body, Rejected

FIELDS = CompletionCreateParamsNonStreaming.__required_keys__ | CompletionCreateParamsNonStreaming.__optional_keys__
ROLES = ("developer", "system", "user", "assistant", "tool")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
NOT_IN_STRICT = ("allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties")
LONGEST_CACHE_KEY = 64
LONGEST_FORM_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Of one model."""

    reasons: bool = True
    marked: bool = False
    """Whether its cache is written and found at marks."""
    window: int = 400_000


MODELS = {
    "gpt-5.6-sol": Abilities(marked=True),
    "gpt-6-astra": Abilities(marked=True),
    "gpt-5.4": Abilities(),
    "gpt-4.1": Abilities(reasons=False),
}


def check(body: Body) -> None:
    """Raises Rejected for the first rule that `body` breaks."""
    unknown = sorted(body.keys() - FIELDS)
    if unknown:
        raise Rejected(f"Unknown parameter: '{unknown[0]}'.", code="unknown_parameter")
    for rule in _RULES:
        rule(body)


def parts(content: Any) -> list[Body]:
    """The parts of a message; a text is one part."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def rendered(body: Body) -> list[tuple[str, bool]]:
    """The prompt in pieces, the schema of its reply first, with whether a mark ends them."""
    pieces = [(canonical(body.get("response_format")), False)]
    for message in body["messages"]:
        said = parts(message["content"])
        pieces += [(f"<{message['role']}>{part['text']}", "prompt_cache_breakpoint" in part) for part in said]
    return pieces


def _check_model(body: Body) -> None:
    if body.get("model") not in MODELS:
        why = f"The model `{body.get('model')}` does not exist or you do not have access to it."
        raise Rejected(why, 404, code="model_not_found")


def _check_messages(body: Body) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Rejected("Invalid 'messages': empty array.", code="empty_array")
    for message in messages:
        if message.get("role") not in ROLES:
            raise Rejected(f"Invalid value: '{message.get('role')}'.", code="invalid_value")
        texts = [part.get("text") for part in parts(message.get("content")) if part.get("type") == "text"]
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise Rejected("Invalid value for 'content': expected a string, got null.")


def _check_lengths(body: Body) -> None:
    if "max_tokens" in body and "max_completion_tokens" in body:
        why = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        raise Rejected(why, code="invalid_parameter_combination")
    if "max_tokens" in body and MODELS[body["model"]].reasons:
        why = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        raise Rejected(f"Unsupported parameter: {why}", code="unsupported_parameter")


def _check_reasoning(body: Body) -> None:
    reasons, effort = MODELS[body["model"]].reasons, body.get("reasoning_effort")
    if reasons and body.get("temperature", 1) != 1:
        why = f"'temperature' does not support {body['temperature']} with this model."
        raise Rejected(f"Unsupported value: {why}", code="unsupported_value")
    if effort is not None and not reasons:
        raise Rejected("Unrecognized request argument supplied: reasoning_effort")
    if effort is not None and effort not in EFFORTS:
        raise Rejected(f"Invalid value: '{effort}'.", code="invalid_value")


def _check_cache(body: Body) -> None:
    if len(body.get("prompt_cache_key", "")) > LONGEST_CACHE_KEY:
        raise Rejected("Invalid 'prompt_cache_key': string too long.", code="string_above_max_length")
    if MODELS[body["model"]].marked:
        return
    if "prompt_cache_options" in body:
        raise Rejected("Unsupported parameter: prompt_cache_options", code="unsupported_parameter")
    if any("prompt_cache_breakpoint" in part for message in body["messages"] for part in parts(message["content"])):
        raise Rejected("prompt_cache_breakpoint is not supported on this model", code="invalid_parameter")


def _check_form(body: Body) -> None:
    form = body.get("response_format") or {"type": "text"}
    if form.get("type") != "json_schema":
        return
    named = form.get("json_schema") or {}
    if not LONGEST_FORM_NAME.fullmatch(str(named.get("name", ""))):
        raise Rejected("Invalid 'response_format.json_schema.name'.", code="invalid_value")
    if named.get("strict"):
        for flaw in strict_flaws(named["schema"]):
            raise Rejected(f"Invalid schema for response_format '{named['name']}': {flaw}")


def strict_flaws(schema: Body) -> Iterator[str]:
    """What strict mode refuses in a JSON Schema."""
    if schema.get("type") != "object" or "anyOf" in schema:
        yield "schema must be a JSON Schema of 'type: \"object\"'."
    yield from _flaws(schema, ())


def _flaws(node: Any, context: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(node, dict):
        return
    yield from (f"In context={context}, '{word}' is not permitted." for word in NOT_IN_STRICT if word in node)
    if "properties" in node or node.get("type") == "object":
        yield from (f"In context={context}, {flaw}" for flaw in _open(node))
    for place in ("properties", "$defs"):
        for name, inner in node.get(place, {}).items():
            yield from _flaws(inner, (*context, place, name))
    yield from _flaws(node.get("items"), (*context, "items"))
    for at, inner in enumerate(node.get("anyOf", ())):
        yield from _flaws(inner, (*context, "anyOf", str(at)))


def _open(node: Body) -> Iterator[str]:
    if node.get("additionalProperties") is not False:
        yield "'additionalProperties' is required to be supplied and to be false."
    missing = sorted(node.get("properties", {}).keys() - set(node.get("required", ())))
    if missing:
        wanted = "'required' is required to be supplied and to be an array including every key in properties"
        yield f"{wanted}. Missing '{missing[0]}'."


_RULES: tuple[Callable[[Body], None], ...] = (
    _check_model,
    _check_messages,
    _check_lengths,
    _check_reasoning,
    _check_cache,
    _check_form,
)
