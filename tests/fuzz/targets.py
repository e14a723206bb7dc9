"""Parsers of untrusted bytes: each target takes bytes and raises only if we are wrong. Heads of HTTP requests come on a
connection, in one piece or in several."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any

import uvicorn
from pydantic import JsonValue, ValidationError
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from agent_service.api import requests
from agent_service.api.errors import ApiError
from agent_service.models.prompts.validation import object_in
from ductile_gateway.calls.call import ToolOutcome
from ductile_gateway.plugins.manifest import read_manifest
from ductile_gateway.plugins.response import CallRemains, judge
from ductile_gateway.webhooks import inbound, mapping, signatures
from ductile_gateway.webhooks.mapping import RequestRefused
from ductile_gateway.webhooks.settings import EventMapping
from groundwork.http import BoundedProtocol, HttpServer, host, single_header
from groundwork.service.strict import NotStrictJson, NotYaml, parse
from schemas import subjects
from schemas.continuation import read_plugin_result
from schemas.envelope import Misshapen, to_envelope
from schemas.events import envelope_of

KEY = b"a key that no input was signed with"
WHEN = datetime(2026, 11, 23, tzinfo=UTC)
ORIGIN = mapping.Origin("peer", "any.type", "e-1", WHEN, untrusted=True)
MAPPINGS: tuple[EventMapping, ...] = tuple(
    EventMapping.model_validate(said)
    for said in (
        {"to": "agentic.start", "goal": "Look into {/a} and {/b/0}.", "context": {"all": ""}},
        {"to": "agentic.tool_result", "run_id": "/a", "step": "/b", "tool": "/c", "status": "/d", "error": "/e"},
        {
            "to": "agentic.signal",
            "run_id": "/a",
            "kind": "answer",
            "message": "{/b}",
            "constraints": {"max_steps": "/c"},
        },
        {"to": "agentic.cancel", "run_id": "/a", "reason": "{/b}"},
    )
)


def envelope(data: bytes) -> None:
    """Messages of the bus: a parsed message can be serialized again with the same meaning."""
    head, _, body = data.partition(b"\n")
    headers = {name: value for name, _, value in (line.partition("=") for line in head.decode("latin-1").split("&"))}
    for subject in (subjects.START, subjects.TOOL_RESULT, subjects.CANCEL, subjects.SIGNAL):
        try:
            event = envelope_of(subject).model_validate_json(to_envelope(subject, body, headers))
        except (Misshapen, ValidationError):
            continue
        assert envelope_of(subject).model_validate_json(event.body()) == event


def wake(data: bytes) -> None:
    try:
        asked = requests.read(requests.WakeRequest, data)
    except (ApiError, NotStrictJson):
        return
    json.dumps(asked.model_dump(mode="json"), allow_nan=False).encode()


def ingress_signatures(data: bytes) -> None:
    """Signature headers: nothing unsigned is accepted."""
    text = data.decode("latin-1")
    found = (*signatures.hex_digests(text), *signatures.hex_digests(text, prefix_needed=True))
    listed = signatures.standard_digests(text)
    assert len(listed) <= signatures.MOST_SIGNATURES
    assert not signatures.signed_by_any([KEY], data, [*listed, *found])
    at = signatures.unix_instant(text)
    assert at is None or signatures.within(at, at)
    signatures.relay_instant(text)


def relay(data: bytes) -> None:
    """Webhook bodies of peers and of other senders."""
    try:
        document = inbound.read_json(data)
    except RequestRefused:
        return
    for one in MAPPINGS:
        _made_of(lambda one=one: mapping.of_document(one, document, ORIGIN, _no_offer))  # type: ignore[misc]
    _made_of(lambda: _relayed(document))


def _relayed(document: JsonValue) -> mapping.Outgoing:
    return mapping.of_relayed(mapping.read_relayed(document), None, ORIGIN, _no_offer)


def _made_of(make: Callable[[], mapping.Outgoing]) -> None:
    """The resulting event is valid for the agent."""
    try:
        event = make()
    except RequestRefused:
        return
    envelope_of(event.subject).model_validate_json(event.body)


def _no_offer(_: str) -> None:
    return None


def manifest(data: bytes) -> None:
    try:
        read = read_manifest(parse(data.decode()))
    except (ValueError, NotYaml):
        return
    assert not read.entrypoint.startswith("/")
    assert ".." not in read.entrypoint.split("/")


def plugin_response(data: bytes) -> None:
    """Output of plugins: always an outcome whose content can be stored and sent."""
    for exit_code in (0, 1, 78):
        end = {"began": b"7 1.5", "exit": b"%d 2.5" % exit_code}
        verdict = judge(CallRemains(found=end | {"request": b"{}", "stdout": data, "stderr": data}))
        assert isinstance(verdict, ToolOutcome)
        json.dumps(verdict.output, allow_nan=False)
        "".join((verdict.text, verdict.message or "", *(artifact.name for artifact in verdict.artifacts))).encode()


def plugin_markdown(data: bytes) -> None:
    with suppress(ValueError):
        read_plugin_result(data.decode("utf-8", "replace"))


def model_reply(data: bytes) -> None:
    """Replies of models: an object, or its flaws."""
    with suppress(ValueError):
        object_in(data.decode("utf-8", "replace"))


TURNS = 4
"""Turns of the loop after each piece, enough for an answer that waits for nothing."""


class _Wire(asyncio.Transport):
    """Transport that discards what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1234), "sockname": ("127.0.0.1", 8700)})
        self.written = 0
        self._closing = False

    def write(self, data: Any) -> None:
        self.written += len(data)

    def close(self) -> None:
        self._closing = True

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        """Never called."""

    resume_reading = pause_reading


async def _app(scope: Scope, _: Receive, send: Send) -> None:
    """Checks that all our servers make first."""
    assert scope["type"] == "http"
    assert "/" not in host(scope) or single_header(scope, "host")
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def heads(data: bytes) -> None:
    """The first byte is the number of pieces of the rest. An answer is never longer than the request."""
    _runner().run(_heard(data[1:], pieces=1 + (data[0] % 4 if data else 0)))


@cache
def _runner() -> asyncio.Runner:
    """One loop for all inputs, because making one takes longer than reading a head."""
    return asyncio.Runner()


async def _heard(data: bytes, *, pieces: int) -> None:
    wire, errors = _Wire(), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    config: uvicorn.Config = HttpServer(_app).config
    config.load()
    protocol = BoundedProtocol(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    protocol.connection_made(wire)
    size = len(data) // pieces + 1
    for start in range(0, len(data), size):
        if not wire.is_closing():
            protocol.data_received(data[start : start + size])
        for _ in range(TURNS):
            await asyncio.sleep(0)
    protocol.connection_lost(None)
    assert not errors, errors
    assert wire.written <= 4096 + 64 * len(data)


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        envelope,
        wake,
        ingress_signatures,
        relay,
        manifest,
        plugin_response,
        plugin_markdown,
        model_reply,
        heads,
    )
}
