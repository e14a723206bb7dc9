"""The simulated prompt cache: what is read and written again, and what the diagnosis says."""

from typing import Any

import pytest

from tests.models.prompt_cache import CacheUse, Diagnosis, PromptCache

LEAST = 512
BIG = "x" * 4 * LEAST
"""A block that is just large enough to be kept."""
SMALL = "y" * 40
"""Ten tokens."""


def text(said: str, ttl: str | None = None) -> dict[str, Any]:
    return {"type": "text", "text": said} | ({"cache_control": {"type": "ephemeral", "ttl": ttl}} if ttl else {})


def body(*said: dict[str, Any], system: str = BIG, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": list(said)}]
    return {"model": "m", "system": [text(system, "5m")], "messages": messages, **fields}


def use(cache: PromptCache, request: dict[str, Any]) -> CacheUse:
    return cache.use(request, LEAST)


def test_the_first_request_writes_up_to_its_last_breakpoint() -> None:
    used = use(PromptCache(), body(text(SMALL, "5m"), text(SMALL)))
    assert (used.read, used.written, used.rest) == (0, {"5m": LEAST + 10, "1h": 0}, 10)


def test_the_next_request_reads_what_is_the_same_and_writes_what_is_new() -> None:
    cache = PromptCache()
    use(cache, body(text(SMALL, "5m"), text("tail 1")))
    used = use(cache, body(text(SMALL), text(SMALL, "5m"), text("tail 2")))
    assert (used.read, used.written["5m"], used.rest) == (LEAST + 10, 10, 2)


def test_a_changed_byte_costs_all_that_comes_after_it() -> None:
    cache = PromptCache()
    use(cache, body(text(BIG, "5m")))
    assert use(cache, body(text("z" + BIG[1:], "5m"))).read == LEAST
    assert use(cache, body(text(BIG, "5m"), system="z" + BIG[1:])).read == 0


@pytest.mark.parametrize(
    "changed",
    [{"model": "n"}, {"output_config": {"format": {"type": "json_schema"}}}, {"tools": [{"name": "t"}]}],
    ids=["model", "output format", "tools"],
)
def test_what_stands_before_the_system_prompt_is_part_of_the_match(changed: dict[str, Any]) -> None:
    cache = PromptCache()
    use(cache, body(text(SMALL)))
    assert use(cache, body(text(SMALL), **changed)).read == 0


def test_effort_is_no_part_of_the_match() -> None:
    cache = PromptCache()
    use(cache, body(text(SMALL), output_config={"effort": "low"}))
    assert use(cache, body(text(SMALL), output_config={"effort": "high"})).read == LEAST


def test_a_beginning_that_is_too_small_is_not_kept() -> None:
    cache = PromptCache()
    used = [use(cache, body(text(SMALL), system=BIG[4:])) for _ in range(2)]
    assert [(u.read, sum(u.written.values())) for u in used] == [(0, 0), (0, 0)]


def test_use_keeps_alive_and_time_does_not() -> None:
    cache, request = PromptCache(), body(text(SMALL))
    use(cache, request)
    for _ in range(3):
        cache.now += 299
        assert use(cache, request).read == LEAST
    cache.now += 300
    assert use(cache, request).read == 0


def test_an_hour_is_an_hour() -> None:
    cache, request = PromptCache(), {"model": "m", "system": [text(BIG, "1h")], "messages": []}
    assert use(cache, request).written == {"5m": 0, "1h": LEAST}
    cache.now += 3599
    assert use(cache, request).read == LEAST


def test_each_part_is_written_for_as_long_as_its_breakpoint_says() -> None:
    request = {"model": "m", "system": [text(BIG, "1h"), text(SMALL, "5m")], "messages": []}
    assert use(PromptCache(), request).usage()["cache_creation"] == {
        "ephemeral_5m_input_tokens": 10,
        "ephemeral_1h_input_tokens": LEAST,
    }


@pytest.mark.parametrize(("between", "found"), [(19, True), (20, False)])
def test_only_20_blocks_are_looked_back(between: int, found: bool) -> None:
    cache = PromptCache()
    use(cache, body(text(BIG, "5m")))
    used = use(cache, body(text(BIG), *[text(SMALL)] * (between - 1), text(SMALL, "5m")))
    assert used.read == (2 * LEAST if found else LEAST)


def told(diagnosis: Diagnosis, request: dict[str, Any], previous: str | None, reply: str) -> Any:
    return diagnosis.of({**request, "diagnostics": {"previous_message_id": previous}}, reply)


def test_who_does_not_ask_for_a_diagnosis_gets_none() -> None:
    assert Diagnosis().of(body(), "a") == {}


def test_the_first_request_has_nothing_to_be_compared_with() -> None:
    assert told(Diagnosis(), body(), None, "a") == {"diagnostics": None}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (body(text("one")), None),
        ({**body(text("one")), "messages": [*body(text("one"))["messages"], {"role": "user", "content": "two"}]}, None),
        (body(text("one", "5m")), None),
        (body(text("one"), model="n"), "model_changed"),
        (body(text("one"), system="other"), "system_changed"),
        (body(text("one"), tools=[{"name": "t"}]), "tools_changed"),
        (body(text("one"), output_config={"effort": "low"}), "unavailable"),
        (body(text("two")), "messages_changed"),
        (body(text("one"), text("two")), "messages_changed"),
    ],
    ids=["same", "a message more", "a breakpoint", "model", "system", "tools", "others", "a message", "a block more"],
)
def test_the_diagnosis_names_what_differs_first(changed: dict[str, Any], reason: str | None) -> None:
    diagnosis = Diagnosis()
    told(diagnosis, body(text("one")), None, "a")
    said = told(diagnosis, changed, "a", "b")["diagnostics"]
    assert (said["cache_miss_reason"]["type"] if said else None) == reason


def test_a_reply_that_nobody_knows_cannot_be_compared_with() -> None:
    said = told(Diagnosis(), body(), "a", "b")
    assert said == {"diagnostics": {"cache_miss_reason": {"type": "previous_message_not_found"}}}
