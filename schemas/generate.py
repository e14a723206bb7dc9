"""Generates the contract for all languages: JSON Schemas, an AsyncAPI 3.0.0 document, and NATS accounts.

`python -m schemas.generate` writes schemas/generated/; `--check` only exits 1 if that folder differs from
the models. The AsyncAPI document takes the agent's point of view: inbound schemas are for validation, outbound ones
for serialisation. Published objects are open, because fields are added within a version. `x-jetstream` describes
streams and consumers.
"""

import argparse
import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from schemas import keys, permissions, subjects
from schemas.catalog import Catalog
from schemas.continuation import CONTINUATION
from schemas.events import INBOUND, OUTBOUND, envelope_of
from schemas.status import GatewayStatus

Json = dict[str, Any]

VERSION = "v1"
GENERATED = Path(__file__).with_name("generated")
SAMPLES = Path(__file__).with_name("samples")
REFS = "#/components/schemas/{model}"
HEADERS = {
    "Nats-Msg-Id": "The dedupe key: of two messages with the same one, JetStream stores the first.",
    "traceparent": "W3C trace context: the run's trace, and the span in it that the message belongs to.",
    "Agentic-Run-Id": "The run that the message belongs to.",
    "ce-specversion": "1.0: CloudEvents in binary mode.",
    "ce-id": "The dedupe key.",
    "ce-type": "The type of the event.",
    "ce-source": "The service that sent the message.",
    "ce-time": "When it happened: RFC 3339, UTC.",
}
_OF_A_RUN = ("traceparent", "Agentic-Run-Id")
_REQUIRED: dict[str, Json] = {
    "HeadersReceived": {},
    "HeadersSent": {"required": list(HEADERS)},
    "HeadersOfRejection": {"required": [name for name in HEADERS if name not in _OF_A_RUN]},
}
ANSWERED: dict[str, tuple[str, str]] = {
    subjects.CATALOG: ("askCatalog", "An empty body asks for all tools."),
    subjects.STATUS: ("askStatus", "An empty body asks how the gateway is."),
}
MODELS: dict[str, type[BaseModel]] = {
    **{subject: envelope_of(subject) for subject in INBOUND | OUTBOUND},
    subjects.CATALOG: Catalog,
    subjects.STATUS: GatewayStatus,
}


def main(argv: Sequence[str] | None = None, folder: Path = GENERATED) -> None:
    """Raises SystemExit: 1 if `--check` finds a difference, 2 for unknown arguments."""
    parser = argparse.ArgumentParser(prog="python -m schemas.generate", description="Write schemas/generated/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the folder is not fresh")
    checks, wanted = parser.parse_args(argv).check, documents()
    found = {path.name: path.read_bytes() for path in folder.glob("*")}
    stale = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if checks and stale:
        why = f"{folder} is not fresh: {', '.join(stale)}"
        raise SystemExit(f"{why}. Run `python -m schemas.generate` and commit it.")
    for name in stale:
        if name in wanted:
            (folder / name).write_bytes(wanted[name])
        else:
            (folder / name).unlink()


def documents() -> dict[str, bytes]:
    files = {f"{name}.{VERSION}.json": _json_schema(name) for name in MODELS} | {"asyncapi.json": _asyncapi()}
    texts = {name: _text(document) for name, document in files.items()}
    return texts | {"nats-accounts.conf": permissions.accounts(permissions.SHIPPED, permissions.key_variable).encode()}


def _text(document: Json) -> bytes:
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


# JSON Schemas


def _json_schema(name: str) -> Json:
    about = {"$id": f"urn:agentic-loop:{name}:{VERSION}", "title": name}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **about, **_body(name, "#/$defs/{model}")}


def _body(name: str, refs: str) -> Json:
    mode: Literal["serialization", "validation"] = "serialization" if name in OUTBOUND else "validation"
    schema: Json = _published(MODELS[name].model_json_schema(mode=mode, ref_template=refs))
    if name == subjects.TOOL_RESULT:
        wished = _published(CONTINUATION.json_schema(ref_template=refs))
        schema["$defs"] |= wished.pop("$defs") | {"Continuation": wished}
        schema["$defs"]["ToolOutput"]["properties"]["continuation"] = {"$ref": refs.format(model="Continuation")}
    if name == subjects.TOOL_REQUEST:
        route = subjects.NAME.pattern.removeprefix("^")
        schema["properties"]["type"] = {"type": "string", "pattern": f"^{re.escape(name)}\\.{route}"}
    elif name not in ANSWERED:
        schema["properties"]["type"] = {"type": "string", "const": name}
    return schema


def _published(schema: Any) -> Any:
    """The schema, open for new fields and without keywords that only pydantic needs."""
    if isinstance(schema, list):
        return [_published(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _published(value) for key, value in schema.items() if key != "title" or isinstance(value, dict)}
    kept.pop("discriminator", None)
    return {key: value for key, value in kept.items() if key != "additionalProperties" or value is not False}


# The AsyncAPI document


def _asyncapi() -> Json:
    bodies = {name: _body(name, REFS) for name in MODELS}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Agentic Loop",
            "version": "1.0.0",
            "description": "The events of a durable agent loop on NATS JetStream, from the agent's point of view.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {event: _channel(event) for event in keys.DEDUPE_KEYS} | _channels_of_questions(),
        "operations": dict(map(_operation, [*keys.DEDUPE_KEYS, *ANSWERED])),
        "components": {"messages": {name: _message(name) for name in bodies}, "schemas": _schemas(bodies)},
        "x-jetstream": {
            "streams": {name: _stream(name) for name in subjects.STREAMS},
            "consumers": {
                name: {"stream": stream, "filterSubjects": list(filters), "ackPolicy": "explicit"}
                for name, (stream, filters) in subjects.CONSUMERS.items()
            },
            "objectStores": [subjects.ARTIFACT_BUCKET],
            "keyValueStores": [subjects.LEASE_BUCKET],
        },
    }


def _channel(event: str) -> Json:
    channel: Json = {"address": event, "messages": _only(event), "x-jetstream": _channel_facts(event)}
    if event in INBOUND:
        channel["description"] = "Taken too: the payload alone, or as the data of a CloudEvent (1.0), in either mode."
    if event == subjects.TOOL_REQUEST:
        about = f"The Ductile plugin or pipeline that serves the tool. Matches {subjects.NAME.pattern}"
        channel |= {"address": f"{event}.{{route}}", "parameters": {"route": {"description": about}}}
    return channel


def _only(message: str) -> Json:
    return {message: {"$ref": f"#/components/messages/{message}"}}


def _channel_facts(event: str) -> Json:
    pattern = subjects.ALL_TOOL_REQUESTS if event == subjects.TOOL_REQUEST else event
    facts: Json = {
        "stream": next(name for name, stored in subjects.STREAMS.items() if pattern in stored),
        "consumers": [name for name, (_, taken) in subjects.CONSUMERS.items() if fnmatch.filter(taken, pattern)],
        "dedupeKey": keys.DEDUPE_KEYS[event],
    }
    if event in (subjects.TOOL_REQUEST, subjects.TOOL_RESULT):
        facts["dedupeKeyOfTask"] = keys.KEYS_OF_TASKS[event]
        facts["dedupeKeyFromAttempt2"] = keys.DEDUPE_KEYS[event] + keys.RETRY_SUFFIX
    if event == subjects.TOOL_RESULT:
        facts["dedupeKeySuffixWhenLate"] = keys.LATE_SUFFIX
    return facts


def _stream(name: str) -> Json:
    # The operator sets ages and sizes: they are no part of the contract.
    retention = "workqueue" if name == subjects.STREAM_STARTS else "limits"
    return {"subjects": list(subjects.STREAMS[name]), "storage": "file", "retention": retention}


def _operation(name: str) -> tuple[str, Json]:
    if name in ANSWERED:
        asked = {"action": "send", **_where(name, "request"), "reply": _where(f"{name}.reply", name)}
        return ANSWERED[name][0], asked
    action = "receive" if name in INBOUND else "send"
    words = "".join(word.capitalize() for word in name.replace("_", ".").split("."))
    return f"{action}{words}", {"action": action, **_where(name, name)}


def _where(channel: str, message: str) -> Json:
    at = f"#/channels/{channel}"
    return {"channel": {"$ref": at}, "messages": [{"$ref": f"{at}/messages/{message}"}]}


def _channels_of_questions() -> Json:
    channels: Json = {}
    for subject, (_, summary) in ANSWERED.items():
        request = {"request": {"name": "request", "summary": summary}}
        channels[subject] = {"address": subject, "messages": request}
        channels[f"{subject}.reply"] = {"address": None, "messages": _only(subject)}
    return channels


def _message(name: str) -> Json:
    samples = sorted(SAMPLES.glob(f"{name}*.{VERSION}.json"))
    examples = [{"name": path.stem, "payload": json.loads(path.read_bytes())} for path in samples]
    message = {"name": name, "payload": {"$ref": REFS.format(model=name)}, "examples": examples}
    if name in ANSWERED:
        return message
    headers = "HeadersReceived" if name in INBOUND else "HeadersSent"
    headers = "HeadersOfRejection" if name == subjects.REJECTED else headers
    return message | {"headers": {"$ref": REFS.format(model=headers)}}


def _schemas(bodies: Mapping[str, Json]) -> Json:
    described = {name: {"type": "string", "description": text} for name, text in HEADERS.items()}
    schemas: Json = {name: {"type": "object", "properties": described} | more for name, more in _REQUIRED.items()}
    for name, body in bodies.items():
        schemas |= body.get("$defs", {})
        schemas[name] = {key: value for key, value in body.items() if key != "$defs"}
    return schemas


if __name__ == "__main__":
    main()
