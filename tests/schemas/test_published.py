"""Generated AsyncAPI document, JSON Schemas and samples agree with the code."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from agent_service.bus.topology import topology
from schemas import envelope, generate, keys, subjects
from schemas.events import INBOUND, OUTBOUND
from schemas.generate import ANSWERED, HEADERS
from schemas.keys import DEDUPE_KEYS, KEYS_OF_TASKS, RETRY_SUFFIX
from tests.schemas import samples


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((generate.GENERATED / "asyncapi.json").read_bytes())
    return content


def test_the_document_is_valid_asyncapi_3_0_0_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schema = Path(__file__).with_name("asyncapi_3_0_0.schema.json")
    jsonschema_rs.Draft7Validator(json.loads(schema.read_bytes())).validate(document)
    for ref in samples.refs(document):
        samples.at(document, ref)


def test_the_agent_receives_what_is_inbound_and_sends_what_is_outbound(document: dict[str, Any]) -> None:
    actions = {
        samples.at(document, op["channel"]["$ref"])["address"]: op["action"] for op in document["operations"].values()
    }
    inbound = dict.fromkeys(INBOUND, "receive")
    outbound = {event.replace("tool_request", "tool_request.{route}"): "send" for event in OUTBOUND}
    assert actions == inbound | outbound | dict.fromkeys(ANSWERED, "send")


def test_a_model_is_described_as_in_its_own_schema_file(document: dict[str, Any]) -> None:
    for name in generate.MODELS:
        alone = (generate.GENERATED / f"{name}.v1.json").read_text("utf-8").replace("#/$defs/", "#/components/schemas/")
        for model, definition in json.loads(alone).get("$defs", {}).items():
            assert document["components"]["schemas"][model] == definition, f"{model} of {name}"


def test_keys_are_stable() -> None:
    step, task = "agentic:run:run_1:step:3", "agentic:run:run_1:step:3:task:again:2"
    assert keys.request("run_1", 3, 1) == f"{step}:request"
    assert keys.result("run_1", 3, 2) == f"{step}:result:attempt:2"
    assert keys.result("run_1", 3, 2) + keys.LATE_SUFFIX == f"{step}:result:attempt:2:late"
    assert keys.request("run_1", 3, 1, "again", 2) == f"{task}:request"
    assert keys.result("run_1", 3, 2, "again", 2) == f"{task}:result:attempt:2"
    assert keys.call("run_1", 3, "fetch", 1, "again", 2) == "run_1:3:again:2:fetch:1"


def test_every_event_is_stored_and_says_where_and_the_headers_are_those_that_the_code_sets(
    document: dict[str, Any],
) -> None:
    about: dict[str, Any] = {"dedupe_key": "k", "source": "s", "at": datetime.now(UTC)}
    of_event = envelope.event_headers("t", **about, run_id="r", trace_id="0" * 32)
    assert set(HEADERS) == {"Nats-Msg-Id", *of_event}
    for event in DEDUPE_KEYS:
        stream = document["channels"][event]["x-jetstream"]["stream"]
        assert event in subjects.STREAMS[stream] or (event, stream) == (subjects.TOOL_REQUEST, subjects.STREAM_REQUESTS)


def test_the_streams_and_consumers_are_those_that_the_program_makes(document: dict[str, Any]) -> None:
    described = document["x-jetstream"]["streams"]
    streams = [one for one in topology() if not one.consumer and not one.stream.startswith(("KV_", "OBJ_"))]
    assert set(described) == {one.stream for one in streams}
    for one in streams:
        made = [subject for subject in one.settings["subjects"] if not subject.startswith("$JS.")]
        assert sorted(described[one.stream]["subjects"]) == sorted(made)
        for fact in ("storage", "retention"):
            assert described[one.stream][fact] == one.settings[fact]
    described = document["x-jetstream"]["consumers"]
    followed = {one.consumer: (one.stream, one.settings["filter_subjects"]) for one in topology() if one.consumer}
    assert {name: (facts["stream"], facts["filterSubjects"]) for name, facts in described.items()} == followed


def test_the_committed_files_are_fresh_and_the_check_names_what_is_not(tmp_path: Path) -> None:
    generate.main(["--check"])
    generate.main([], folder := tmp_path)
    (folder / "agentic.start.v1.json").write_text("{}\n")
    (folder / "agent.failed.v1.json").unlink()
    (folder / "agentic.old.v1.json").write_text("{}\n")
    with pytest.raises(SystemExit) as refusal:
        generate.main(["--check"], folder)
    assert "fresh: agent.failed.v1.json, agentic.old.v1.json, agentic.start.v1.json. Run" in str(refusal.value)
    generate.main([], folder)
    generate.main(["--check"], folder)


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("agentic.start", {"goal": 5}),
    ("agentic.start", {"run_id": "../etc"}),
    ("agentic.tool_result", {"status": "maybe"}),
    ("agentic.tool_result", {"completed_at": "2026-W01-1"}),
    ("agentic.tool_result", {"step": 0}),
    ("agentic.tool_request", {"tool": "foo.>"}),
    ("agent.progress", {"phase": "ponder"}),
]


def test_a_schema_refuses_a_wrong_value() -> None:
    for event, change in WRONG:
        published = samples.published(event)
        assert published.is_valid(json.loads(samples.changed(event)))
        assert not published.is_valid(json.loads(samples.changed(event, **change))), change


def within(part: Any, whole: Any) -> bool:
    """True if `whole` has all of `part`; objects may have more."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and within(v, whole[k]) for k, v in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and all(within(*pair) for pair in zip(part, whole, strict=True))
    return bool(part == whole)


def grown(value: Any) -> Any:
    return {"added_later": 1} | {k: grown(v) for k, v in value.items()} if isinstance(value, dict) else value


def test_every_event_has_a_sample_and_the_examples_of_rfc_103_are_among_them() -> None:
    assert {samples.event_of(path) for path in samples.PATHS} == set(generate.MODELS)
    for event in ("agentic.start", "agentic.tool_request", "agentic.tool_result", "agent.completed"):
        assert (generate.SAMPLES / f"{event}.rfc103.v1.json").is_file()


@pytest.mark.parametrize("path", samples.PATHS, ids=samples.title)
def test_every_message_that_was_ever_valid_stays_valid_with_its_key_and_nothing_of_it_is_lost(path: Path) -> None:
    event, body = samples.event_of(path), samples.body(path)
    parsed = generate.MODELS[event].model_validate_json(path.read_bytes())
    assert within(body, parsed.model_dump(mode="json", by_alias=True))
    samples.published(event).validate(body)
    samples.published(event).validate(grown(body))
    if "rfc103" in path.name or event not in DEDUPE_KEYS:
        return
    templates = KEYS_OF_TASKS if "task" in body["payload"] else DEDUPE_KEYS
    template = templates[event] + (RETRY_SUFFIX if body["payload"].get("attempt", 1) > 1 else "")
    known = {"external_id": body["payload"].get("wake_id"), "seq": body.get("dedupe_key", "").split(":")[-1]}
    known["stream"] = subjects.STREAM
    assert body.get("dedupe_key") in (None, template.format(**known | body["payload"]))
