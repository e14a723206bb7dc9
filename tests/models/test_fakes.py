"""The fakes of providers refuse what the providers refuse, and cache as they cache: else their tests prove nothing."""

import copy
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.models import anthropic_rules, openai_rules
from tests.models.fake_anthropic import FakeAnthropic
from tests.models.openai_rules import strict_flaws
from tests.models.prompt_cache import CacheUse, PromptCache
from tests.models.wire import KEY, Rejected

HEADERS = {"authorization": f"Bearer {KEY}", "anthropic-version": "2026-10-21"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
GOOD: dict[str, Any] = {
    "model": "claude-sonnet-5-5",
    "max_tokens": 1000,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}},
}


def marked(*lives: str) -> dict[str, Any]:
    """A system prompt of blocks that are breakpoints."""
    blocks = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": ttl}} for ttl in lives]
    return {"system": blocks}


def schema(**changes: Any) -> dict[str, Any]:
    output = copy.deepcopy(GOOD["output_config"])
    output["format"]["schema"] = {**SCHEMA, **changes}
    return {"output_config": output}


def prop(**schema_of_a: Any) -> dict[str, Any]:
    return schema(properties={"a": schema_of_a})


def props(count: int, required: int, **each: Any) -> dict[str, Any]:
    names = [f"p{number}" for number in range(count)]
    return schema(properties=dict.fromkeys(names, each), required=names[:required])


ITSELF = {"$ref": "#/$defs/N"}
EITHER = [{"type": "string"}, {"type": "null"}]
REFUSED_BY_ANTHROPIC: list[tuple[dict[str, Any], str]] = [
    ({"model": "claude-2"}, "model: claude-2"),
    ({"temperature": 0}, "temperature"),
    ({"top_p": 0.9}, "top_p"),
    ({"top_k": 5}, "top_k"),
    ({"tool_choice": {"type": "any"}}, "not supported for this model"),
    ({"tool_choice": {"type": "tool", "name": "a"}}, "not supported for this model"),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),
    ({"thinking": {"type": "disabled"}}, "thinking"),
    ({"output_config": {"effort": "minimal"}}, "effort"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 200_000}, "max_tokens"),
    ({"messages": []}, "at least one message"),
    ({"seed": 1}, "seed: Extra inputs"),
    ({"output_format": {}}, "output_format: Extra inputs"),
    ({"messages": [*GOOD["messages"], {"role": "assistant", "content": "{"}]}, "prefill"),
    ({"system": " "}, "non-whitespace"),
    (marked(*["5m"] * 5), "Found 5"),
    (marked("5m", "1h"), "must not come after"),
    (marked("2h"), "ttl"),
    ({"output_config": {"format": {"type": "json_object"}}}, "json_schema"),
    (schema(additionalProperties=True), "additionalProperties"),
    (prop(type="object"), "additionalProperties"),
    (schema(properties={"a": ITSELF}, **{"$defs": {"N": {"anyOf": [ITSELF]}}}), "Circular"),
    (prop(**{"$ref": "https://x.example/s"}), "$ref"),
    (prop(type="integer", minimum=1), "minimum"),
    (prop(type="string", maxLength=9), "maxLength"),
    (prop(type="array", maxItems=2), "maxItems"),
    (prop(type="array", minItems=2), "minItems"),
    (prop(oneOf=[{"type": "string"}]), "oneOf"),
    (prop(type="string", format="sql"), "format"),
    (prop(enum=[{}]), "enum"),
    (props(17, 17, type=["string", "null"]), "(17 "),
    (props(17, 17, anyOf=EITHER), "(17 "),
    (props(25, 0, type="string"), "(25)"),
]
TAKEN_BY_ANTHROPIC: list[dict[str, Any]] = [
    {},
    marked("1h", "1h", "5m", "5m"),
    {"thinking": {"type": "adaptive"}},
    {"model": "claude-haiku-5-5", "thinking": {"type": "disabled"}},
    props(16, 16, anyOf=EITHER),
    props(24, 0, type="string"),
]


@pytest.mark.parametrize(("wrong", "told"), REFUSED_BY_ANTHROPIC)
def test_what_anthropic_refuses_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(Rejected) as rejected:
        anthropic_rules.check({**GOOD, **wrong})
    assert told in str(rejected.value)


@pytest.mark.parametrize("right", TAKEN_BY_ANTHROPIC)
def test_what_anthropic_takes_is_taken(right: dict[str, Any]) -> None:
    anthropic_rules.check({**GOOD, **right})


@pytest.fixture
def fake() -> Iterator[FakeAnthropic]:
    fake = FakeAnthropic(most_bytes=20_000)
    fake.policy = "{}"
    yield fake
    fake.close()


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind"),
    [
        (GOOD, HEADERS, 200, None),
        (GOOD, {"anthropic-version": "2026-10-21"}, 401, "authentication_error"),
        (GOOD, {**HEADERS, "authorization": "Bearer wrong"}, 401, "authentication_error"),
        (GOOD, {"x-api-key": KEY, "anthropic-version": "2026-10-21"}, 401, "authentication_error"),
        (GOOD, {"authorization": HEADERS["authorization"]}, 400, "invalid_request_error"),
        ({**GOOD, "model": "claude-2"}, HEADERS, 404, "not_found_error"),
        ({**GOOD, "system": "x" * 30_000}, HEADERS, 413, "request_too_large"),
        ({**GOOD, "temperature": 0}, HEADERS, 400, "invalid_request_error"),
    ],
)
def test_a_call_is_answered_with_the_status_of_the_api(
    fake: FakeAnthropic, body: dict[str, Any], headers: dict[str, str], status: int, kind: str | None
) -> None:
    answer = httpx2.post(f"{fake.base_url}/v1/messages", json=body, headers=headers)
    assert (answer.status_code, answer.json().get("error", {}).get("type")) == (status, kind)


@pytest.mark.parametrize(("scripted", "told"), [({"b": "c"}, "the schema forbids"), (None, "nothing is scripted")])
def test_a_test_that_scripts_what_cannot_be_is_told(fake: FakeAnthropic, scripted: Any, told: str) -> None:
    fake.policy = scripted
    answer = httpx2.post(f"{fake.base_url}/v1/messages", json=GOOD, headers=HEADERS)
    assert told in answer.json()["error"]["message"]


STRICT = {"name": "turn", "strict": True, "schema": SCHEMA}
MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
TAKEN: dict[str, Any] = {
    "model": "gpt-5.4",
    "messages": [{"role": "user", "content": "How are you?"}],
    "max_completion_tokens": 100,
    "response_format": {"type": "json_schema", "json_schema": STRICT},
    "store": False,
}


def form(**changes: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {**STRICT, **changes}}}


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
        (form(name="my turn"), "name"),
        (form(schema={**SCHEMA, "required": []}), "Missing 'a'"),
        (form(schema={**SCHEMA, "additionalProperties": True}), "'additionalProperties' is required"),
        (form(schema={**SCHEMA, "properties": {"a": {"type": "object"}}}), "'properties', 'a'"),
    ],
)
def test_what_openai_refuses_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(Rejected) as rejected:
        openai_rules.check({**TAKEN, **wrong})
    assert told in str(rejected.value)


def test_what_openai_takes_is_taken() -> None:
    openai_rules.check(TAKEN)
    openai_rules.check({**TAKEN, "model": "gpt-4.1", "temperature": 0})
    marks = {"prompt_cache_options": {"mode": "explicit"}, "reasoning_effort": "max"}
    openai_rules.check({**TAKEN, "model": "gpt-5.6-sol", **marks})


def test_a_reasoning_model_takes_no_max_tokens() -> None:
    old = {**TAKEN, "max_tokens": 100}
    del old["max_completion_tokens"]
    openai_rules.check({**old, "model": "gpt-4.1"})
    with pytest.raises(Rejected, match="max_completion_tokens"):
        openai_rules.check(old)


@pytest.mark.parametrize("place", ["items", "anyOf", "$defs"])
def test_an_open_object_is_found_wherever_it_is(place: str) -> None:
    hidden = {"type": "object", "properties": {}}
    inner = {"items": hidden, "anyOf": [hidden], "$defs": {"Hidden": hidden}}[place]
    assert list(strict_flaws(SCHEMA)) == []
    assert list(strict_flaws({**SCHEMA, "properties": {"a": {place: inner}}})) != []


LEAST = 512
BIG = "x" * 4 * LEAST
"""A block that is just large enough to be kept."""
SMALL = "y" * 40
"""Ten tokens."""


def text(said: str, ttl: str | None = None) -> dict[str, Any]:
    return {"type": "text", "text": said} | ({"cache_control": {"type": "ephemeral", "ttl": ttl}} if ttl else {})


def body(*said: dict[str, Any], system: str = BIG, ttl: str = "5m", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": list(said)}]
    return {"model": "m", "system": [text(system, ttl)], "messages": messages, **fields}


def use(cache: PromptCache, request: dict[str, Any]) -> CacheUse:
    return cache.use(request, LEAST)


def test_a_prompt_is_written_up_to_its_last_breakpoint_and_found_by_the_next() -> None:
    cache = PromptCache()
    first = use(cache, body(text(SMALL, "5m"), text("tail 1")))
    assert (first.read, first.written, first.rest) == (0, {"5m": LEAST + 10, "1h": 0}, 2)
    second = use(cache, body(text(SMALL), text(SMALL, "5m"), text("tail 2")))
    assert (second.read, second.written["5m"], second.rest) == (LEAST + 10, 10, 2)


def test_a_changed_byte_costs_all_that_comes_after_it() -> None:
    cache = PromptCache()
    use(cache, body(text(BIG, "5m")))
    assert use(cache, body(text("z" + BIG[1:], "5m"))).read == LEAST
    assert use(cache, body(text(BIG, "5m"), system="z" + BIG[1:])).read == 0


@pytest.mark.parametrize(
    ("changed", "read"),
    [
        ({"model": "n"}, 0),
        ({"output_config": {"format": {"type": "json_schema"}}}, 0),
        ({"tools": [{"name": "t"}]}, 0),
        ({"output_config": {"effort": "low"}}, LEAST),
    ],
)
def test_what_stands_before_the_system_prompt_is_part_of_the_match(changed: dict[str, Any], read: int) -> None:
    cache = PromptCache()
    use(cache, body(text(SMALL)))
    assert use(cache, body(text(SMALL), **changed)).read == read


def test_a_beginning_that_is_too_small_is_not_kept() -> None:
    cache = PromptCache()
    used = [use(cache, body(text(SMALL), system=BIG[4:])) for _ in range(2)]
    assert [(u.read, sum(u.written.values())) for u in used] == [(0, 0), (0, 0)]


@pytest.mark.parametrize(("ttl", "lives_s"), [("5m", 300), ("1h", 3600)])
def test_use_keeps_alive_for_the_time_of_the_breakpoint(ttl: str, lives_s: int) -> None:
    cache, request = PromptCache(), body(text(SMALL), ttl=ttl)
    assert use(cache, request).written[ttl] == LEAST
    for _ in range(3):
        cache.now += lives_s - 1
        assert use(cache, request).read == LEAST
    cache.now += lives_s
    assert use(cache, request).read == 0


@pytest.mark.parametrize(("between", "found"), [(19, True), (20, False)])
def test_only_20_blocks_are_looked_back(between: int, found: bool) -> None:
    cache = PromptCache()
    use(cache, body(text(BIG, "5m")))
    used = use(cache, body(text(BIG), *[text(SMALL)] * (between - 1), text(SMALL, "5m")))
    assert used.read == (2 * LEAST if found else LEAST)
