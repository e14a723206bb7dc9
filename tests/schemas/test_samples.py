"""Every message that was ever valid stays valid."""

from pathlib import Path
from typing import Any

import pytest

from schemas import generate, subjects
from schemas.continuation import read
from schemas.events import Envelope, ToolResult
from schemas.generate import DEDUPE_KEYS, KEYS_OF_TASKS, RETRY_SUFFIX
from tests.schemas import samples

EVERY_SAMPLE = pytest.mark.parametrize("path", samples.PATHS, ids=samples.title)
OURS = [path for path in samples.PATHS if "rfc103" not in path.name and samples.event_of(path) in DEDUPE_KEYS]
TOOL_RESULTS = [path for path in samples.PATHS if samples.event_of(path) == subjects.TOOL_RESULT]


def within(part: Any, whole: Any) -> bool:
    """Whether `whole` has all of `part`; objects may have more."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and within(v, whole[k]) for k, v in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and all(within(*pair) for pair in zip(part, whole, strict=True))
    return bool(part == whole)


def test_every_event_has_a_sample() -> None:
    assert {samples.event_of(path) for path in samples.PATHS} == set(generate.MODELS)


@pytest.mark.parametrize("event", ["agentic.start", "agentic.tool_request", "agentic.tool_result", "agent.completed"])
def test_the_examples_of_rfc_103_are_among_the_samples(event: str) -> None:
    assert (generate.SAMPLES / f"{event}.rfc103.v1.json").is_file()


@EVERY_SAMPLE
def test_a_sample_parses_and_nothing_of_it_is_lost(path: Path) -> None:
    parsed = generate.MODELS[samples.event_of(path)].model_validate_json(path.read_bytes())
    assert within(samples.body(path), parsed.model_dump(mode="json", by_alias=True))


@EVERY_SAMPLE
def test_a_sample_is_valid_by_its_published_schema(path: Path) -> None:
    samples.published(samples.event_of(path)).validate(samples.body(path))


@pytest.mark.parametrize("path", OURS, ids=samples.title)
def test_a_sample_has_the_dedupe_key_of_its_event(path: Path) -> None:
    body = samples.body(path)
    templates = KEYS_OF_TASKS if "task" in body["payload"] else DEDUPE_KEYS
    template = templates[samples.event_of(path)] + (RETRY_SUFFIX if body["payload"].get("attempt", 1) > 1 else "")
    known = {"external_id": body["payload"].get("wake_id"), "seq": body.get("dedupe_key", "").split(":")[-1]}
    known["stream"] = subjects.STREAM
    assert body.get("dedupe_key") in (None, template.format(**known | body["payload"]))


def test_what_a_sample_asks_for_can_be_read() -> None:
    results = [Envelope[ToolResult].model_validate(samples.body(path)).payload for path in TOOL_RESULTS]
    asked = [read(result.result).action for result in results if result.status == "continuation"]
    assert sorted(asked) == ["multi-step", "retrieve", "retrieve"]
