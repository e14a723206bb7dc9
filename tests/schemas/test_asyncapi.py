"""The AsyncAPI document is valid, complete, and says the same as the code."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from agent_service.bus.topology import topology
from schemas import envelope, generate, keys, subjects
from schemas.events import INBOUND, OUTBOUND
from schemas.generate import ANSWERED, DEDUPE_KEYS, HEADERS, KEYS_OF_TASKS, RETRY_SUFFIX, STREAMS


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((generate.GENERATED / "asyncapi.json").read_bytes())
    return content


@pytest.fixture(scope="module")
def specification() -> jsonschema_rs.Draft7Validator:
    schema = Path(__file__).with_name("asyncapi_3_0_0.schema.json")
    return jsonschema_rs.Draft7Validator(json.loads(schema.read_bytes()))


def at(document: Any, ref: str) -> Any:
    """What a local reference points to. Raises KeyError when there is nothing."""
    for token in ref.removeprefix("#/").split("/"):
        document = document[token]
    return document


def refs(node: Any) -> list[str]:
    if isinstance(node, list):
        return [ref for item in node for ref in refs(item)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [ref for value in node.values() for ref in refs(value)]


def test_the_document_is_valid_asyncapi_3_0_0(
    document: dict[str, Any], specification: jsonschema_rs.Draft7Validator
) -> None:
    specification.validate(document)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for ref in refs(document):
        at(document, ref)


def test_every_subject_of_an_event_is_a_channel(document: dict[str, Any]) -> None:
    addresses = {channel["address"] for channel in document["channels"].values()} - {None}
    requests = "agentic.tool_request.{route}"
    assert addresses == (set(generate.MODELS) - {subjects.TOOL_REQUEST}) | {requests}


def test_the_agent_receives_what_is_inbound_and_sends_what_is_outbound(document: dict[str, Any]) -> None:
    actions = {at(document, op["channel"]["$ref"])["address"]: op["action"] for op in document["operations"].values()}
    inbound = dict.fromkeys(INBOUND, "receive")
    outbound = {event.replace("tool_request", "tool_request.{route}"): "send" for event in OUTBOUND}
    assert actions == inbound | outbound | dict.fromkeys(ANSWERED, "send")


def test_a_model_is_described_as_in_its_own_schema_file(document: dict[str, Any]) -> None:
    for name in generate.MODELS:
        alone = (generate.GENERATED / f"{name}.v1.json").read_text("utf-8").replace("#/$defs/", "#/components/schemas/")
        for model, definition in json.loads(alone).get("$defs", {}).items():
            assert document["components"]["schemas"][model] == definition, f"{model} of {name}"


def test_the_dedupe_keys_are_those_of_the_code() -> None:
    rejected = {"stream": "AGENTIC", "stream_seq": 9}
    run = rejected | {
        "run_id": "run_1",
        "step": 3,
        "seq": 7,
        "signal_id": "s1",
        "external_id": "e1",
        "attempt": 2,
    }
    assert {event: template.format(**run) for event, template in DEDUPE_KEYS.items()} == {
        "agentic.start": keys.start("e1"),
        "agentic.tool_request": keys.request("run_1", 3, 1),
        "agentic.tool_result": keys.result("run_1", 3, 1),
        "agentic.cancel": keys.cancel("run_1"),
        "agentic.signal": keys.signal("run_1", "s1"),
        "agent.wake.accepted": keys.accepted("run_1"),
        "agent.progress": keys.progress("run_1", 7),
        "agent.completed": keys.completed("run_1"),
        "agent.escalated": keys.escalated("run_1", 7),
        "agent.failed": keys.failed("run_1"),
        "agent.cancelled": keys.cancelled("run_1"),
        "agent.waiting": keys.waiting("run_1", 7),
        "agent.reopened": keys.reopened("run_1", 7),
        "agent.rejected": keys.rejected("AGENTIC", 9),
    }
    assert keys.request("run_1", 3, 2) == (DEDUPE_KEYS["agentic.tool_request"] + RETRY_SUFFIX).format(**run)
    assert keys.result("run_1", 3, 2) == (DEDUPE_KEYS["agentic.tool_result"] + RETRY_SUFFIX).format(**run)
    of_task = {event: template.format(**run, task="again", round=2) for event, template in KEYS_OF_TASKS.items()}
    assert of_task == {
        "agentic.tool_request": keys.request("run_1", 3, 1, "again", 2),
        "agentic.tool_result": keys.result("run_1", 3, 1, "again", 2),
    }
    assert keys.late_result("run_1", 3, 2) == keys.result("run_1", 3, 2) + keys.LATE_SUFFIX


def test_the_headers_are_those_that_the_code_sets() -> None:
    of_event = envelope.of_event("t", dedupe_key="k", source="s", at="now", run_id="r", trace_id="0" * 32)
    assert set(HEADERS) == {"Nats-Msg-Id", *of_event}


def test_every_event_is_stored_and_says_where(document: dict[str, Any]) -> None:
    for event in DEDUPE_KEYS:
        stream = document["channels"][event]["x-jetstream"]["stream"]
        assert event in STREAMS[stream] or (event, stream) == (subjects.TOOL_REQUEST, subjects.STREAM_REQUESTS)


def test_the_streams_are_those_that_the_program_makes(document: dict[str, Any]) -> None:
    described = document["x-jetstream"]["streams"]
    assert set(described) == {stream.name for stream in topology().streams}
    for stream in topology().streams:
        made = [subject for subject in stream.settings["subjects"] if not subject.startswith("$JS.")]
        assert sorted(described[stream.name]["subjects"]) == sorted(made)
        for fact in ("storage", "retention"):
            assert described[stream.name][fact] == stream.settings[fact]


def test_the_consumers_are_those_that_the_program_makes(document: dict[str, Any]) -> None:
    described = document["x-jetstream"]["consumers"]
    made = {made.name: (made.stream, made.settings["filter_subjects"]) for made in topology().consumers}
    assert {name: (facts["stream"], facts["filterSubjects"]) for name, facts in described.items()} == made
