"""The fake of OpenAI's API refuses what the API refuses: else its tests would prove nothing."""

from typing import Any

import pytest

from tests.models.openai_cache import PromptCache
from tests.models.openai_rules import Rejected, check, strict_flaws

STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "turn", "strict": True, "schema": STRICT}}
PROMPT = [{"role": "user", "content": "How are you?"}]
MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
GOOD = {"model": "gpt-5.4", "messages": PROMPT, "max_completion_tokens": 100, "response_format": FORM, "store": False}


def form(schema: dict[str, Any], name: str = "turn") -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}}


def test_a_proper_request_is_taken() -> None:
    check(GOOD)
    check({**GOOD, "model": "gpt-4.1", "temperature": 0})
    check({**GOOD, "model": "gpt-5.6-sol", "prompt_cache_options": {"mode": "explicit"}, "reasoning_effort": "max"})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"thinking": {}}, "Unknown parameter: 'thinking'"),
        ({"model": "gpt-1"}, "does not exist"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "content"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "bot"),
        ({"max_tokens": 100}, "at the same time"),
        ({"temperature": 0}, "temperature"),
        ({"reasoning_effort": "extreme"}, "extreme"),
        ({"model": "gpt-4.1", "reasoning_effort": "low"}, "reasoning_effort"),
        ({"prompt_cache_options": {"mode": "explicit"}}, "prompt_cache_options"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x", **MARK}]}]}, "breakpoint"),
        ({"prompt_cache_key": "x" * 65}, "prompt_cache_key"),
        (form(STRICT, name="my turn"), "name"),
        (form({**STRICT, "required": []}), "Missing 'a'"),
        (form({**STRICT, "additionalProperties": True}), "'additionalProperties' is required"),
        (form({**STRICT, "properties": {"a": {"type": "object"}}}), "'properties', 'a'"),
    ],
)
def test_what_openai_refuses_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(Rejected) as rejected:
        check({**GOOD, **wrong})
    assert told in str(rejected.value)


def test_a_reasoning_model_takes_no_max_tokens() -> None:
    old = {**GOOD, "max_tokens": 100}
    del old["max_completion_tokens"]
    check({**old, "model": "gpt-4.1"})
    with pytest.raises(Rejected, match="max_completion_tokens"):
        check(old)


@pytest.mark.parametrize("place", ["items", "anyOf", "$defs"])
def test_an_open_object_is_found_wherever_it_is(place: str) -> None:
    hidden = {"type": "object", "properties": {}}
    inner = {"items": hidden, "anyOf": [hidden], "$defs": {"Hidden": hidden}}[place]
    assert list(strict_flaws(STRICT)) == []
    assert list(strict_flaws({**STRICT, "properties": {"a": {place: inner}}})) != []


@pytest.mark.parametrize("model", ["gpt-5.4", "gpt-5.6-sol"])
def test_nothing_is_found_in_the_cache_behind_the_first_difference(model: str) -> None:
    cache, long = PromptCache(), "so it was " * 1000
    one, other = (_prompt(model, start, long) for start in ("a", "b"))
    assert [cache.use(body).read for body in (one, other)] == [0, 0]
    assert cache.use(one).read > 2000


def test_a_short_prompt_is_not_cached() -> None:
    cache = PromptCache()
    assert [cache.use(_prompt("gpt-5.4", "a", "b")).read for _ in range(2)] == [0, 0]


def _prompt(model: str, *texts: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": text, **MARK} for text in texts]
    return {"model": model, "messages": [{"role": "user", "content": parts}]}
