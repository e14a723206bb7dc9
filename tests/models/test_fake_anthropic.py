"""The fake of Anthropic's API refuses what the API refuses: one case per rule, beside one that is taken."""

import copy
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.models.fake_anthropic import FakeAnthropic
from tests.models.model_house import KEY

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


@pytest.fixture
def fake() -> Iterator[FakeAnthropic]:
    fake = FakeAnthropic(most_bytes=20_000)
    fake.policy = "{}"
    yield fake
    fake.close()


def post(fake: FakeAnthropic, body: Any, headers: dict[str, str] | None = None, path: str = "/v1/messages") -> Any:
    return httpx2.post(fake.base_url + path, json=body, headers=HEADERS if headers is None else headers)


def marked(*lives: str) -> list[dict[str, Any]]:
    """Blocks that are breakpoints."""
    return [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": ttl}} for ttl in lives]


def with_schema(**changes: Any) -> dict[str, Any]:
    body = copy.deepcopy(GOOD)
    body["output_config"]["format"]["schema"] = {**SCHEMA, **changes}
    return body


def of(names: range, schema: dict[str, Any]) -> dict[str, Any]:
    return {f"p{name}": schema for name in names}


ITSELF = {"$ref": "#/$defs/N"}
NULLABLE = {"type": ["string", "null"]}
EITHER = {"anyOf": [{"type": "string"}, {"type": "null"}]}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "temperature": ({**GOOD, "temperature": 0}, "temperature"),
    "top_p": ({**GOOD, "top_p": 0.9}, "top_p"),
    "top_k": ({**GOOD, "top_k": 5}, "top_k"),
    "any tool": ({**GOOD, "tool_choice": {"type": "any"}}, "not supported for this model"),
    "a certain tool": ({**GOOD, "tool_choice": {"type": "tool", "name": "a"}}, "not supported for this model"),
    "thinking enabled": ({**GOOD, "thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),
    "thinking disabled": ({**GOOD, "thinking": {"type": "disabled"}}, "thinking"),
    "an unknown effort": ({**GOOD, "output_config": {"effort": "minimal"}}, "effort"),
    "no max_tokens": ({k: v for k, v in GOOD.items() if k != "max_tokens"}, "max_tokens"),
    "more than can be replied": ({**GOOD, "max_tokens": 200_000}, "max_tokens"),
    "no messages": ({**GOOD, "messages": []}, "at least one message"),
    "a field that there is not": ({**GOOD, "seed": 1}, "seed: Extra inputs"),
    "the old output_format": ({**GOOD, "output_format": {}}, "output_format: Extra inputs"),
    "a prefilled reply": (
        {**GOOD, "messages": [*GOOD["messages"], {"role": "assistant", "content": "{"}]},
        "prefill",
    ),
    "a blank text": ({**GOOD, "system": " "}, "non-whitespace"),
    "five breakpoints": ({**GOOD, "system": marked(*["5m"] * 5)}, "Found 5"),
    "1h after 5m": ({**GOOD, "system": marked("5m", "1h")}, "must not come after"),
    "a ttl that there is not": ({**GOOD, "system": marked("2h")}, "ttl"),
    "a format that is no schema": ({**GOOD, "output_config": {"format": {"type": "json_object"}}}, "json_schema"),
    "an open object": (with_schema(additionalProperties=True), "additionalProperties"),
    "an object that does not say": (with_schema(properties={"a": {"type": "object"}}), "additionalProperties"),
    "recursion": (with_schema(properties={"a": ITSELF}, **{"$defs": {"N": {"anyOf": [ITSELF]}}}), "Circular"),
    "a schema elsewhere": (with_schema(properties={"a": {"$ref": "https://x.example/s"}}), "$ref"),
    "a least number": (with_schema(properties={"a": {"type": "integer", "minimum": 1}}), "minimum"),
    "a length": (with_schema(properties={"a": {"type": "string", "maxLength": 9}}), "maxLength"),
    "a most of items": (with_schema(properties={"a": {"type": "array", "maxItems": 2}}), "maxItems"),
    "two items at least": (with_schema(properties={"a": {"type": "array", "minItems": 2}}), "minItems"),
    "oneOf": (with_schema(properties={"a": {"oneOf": [{"type": "string"}]}}), "oneOf"),
    "an unknown format": (with_schema(properties={"a": {"type": "string", "format": "sql"}}), "format"),
    "objects in an enum": (with_schema(properties={"a": {"enum": [{}]}}), "enum"),
    "17 nullable types": (with_schema(properties=of(range(17), NULLABLE), required=[*of(range(17), {})]), "(17 "),
    "17 unions": (with_schema(properties=of(range(17), EITHER), required=[*of(range(17), {})]), "(17 "),
    "25 optional properties": (with_schema(properties=of(range(25), {"type": "string"}), required=[]), "(25)"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_api_refuses_is_refused(fake: FakeAnthropic, case: str) -> None:
    body, said = REFUSED[case]
    answer = post(fake, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert said in answer.json()["error"]["message"]


TAKEN: dict[str, dict[str, Any]] = {
    "a plain request": GOOD,
    "four breakpoints, 1h before 5m": {**GOOD, "system": marked("1h", "1h", "5m", "5m")},
    "adaptive thinking": {**GOOD, "thinking": {"type": "adaptive"}},
    "no thinking, for Haiku": {**GOOD, "model": "claude-haiku-5-5", "thinking": {"type": "disabled"}},
    "16 unions": with_schema(properties=of(range(16), EITHER), required=[*of(range(16), {})]),
    "24 optional properties": with_schema(properties={"a": {"type": "string"}, **of(range(24), {"type": "string"})}),
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN)
def test_what_the_api_takes_is_taken(fake: FakeAnthropic, case: str) -> None:
    assert post(fake, TAKEN[case]).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"anthropic-version": "2026-10-21"}, 401),
        ({**HEADERS, "authorization": "Bearer wrong"}, 401),
        ({"x-api-key": KEY, "anthropic-version": "2026-10-21"}, 401),
        ({"authorization": HEADERS["authorization"]}, 400),
    ],
    ids=["no key", "a wrong key", "the key of former days", "no version"],
)
def test_a_caller_who_does_not_name_himself_is_turned_away(
    fake: FakeAnthropic, headers: dict[str, str], status: int
) -> None:
    assert post(fake, GOOD, headers).status_code == status


def test_an_unknown_model_is_not_found(fake: FakeAnthropic) -> None:
    answer = post(fake, {**GOOD, "model": "claude-2"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")


def test_a_request_that_is_too_large_is_not_read(fake: FakeAnthropic) -> None:
    answer = post(fake, {**GOOD, "system": "x" * 30_000})
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "request_too_large")


def test_tokens_are_counted_as_they_are_charged(fake: FakeAnthropic) -> None:
    counted = post(fake, {k: v for k, v in GOOD.items() if k != "max_tokens"}, path="/v1/messages/count_tokens").json()
    assert post(fake, GOOD).json()["usage"]["input_tokens"] == counted["input_tokens"] > 0


@pytest.mark.parametrize(("model", "status"), [("claude-sonnet-5-5", 200), ("claude-2", 404)])
def test_a_model_can_be_looked_up(fake: FakeAnthropic, model: str, status: int) -> None:
    assert httpx2.get(f"{fake.base_url}/v1/models/{model}", headers=HEADERS).status_code == status


def test_nothing_is_said_that_the_schema_forbids(fake: FakeAnthropic) -> None:
    fake.answer({"b": "c"})
    assert "the schema forbids" in post(fake, GOOD).json()["error"]["message"]


def test_a_test_that_asks_more_often_than_it_scripts_is_told(fake: FakeAnthropic) -> None:
    fake.policy = None
    assert "nothing is scripted" in post(fake, GOOD).json()["error"]["message"]


def test_a_policy_answers_by_the_request(fake: FakeAnthropic) -> None:
    fake.policy = lambda body: {"a": str(body["max_tokens"])}
    assert post(fake, GOOD).json()["content"][-1]["text"] == '{"a": "1000"}'
