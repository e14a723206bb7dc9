"""The contents of artifacts, as a tool is given them in the place of their paths."""

import logging

from pydantic import JsonValue

from ductile_gateway.calls.artifacts import (
    artifact_arguments,
    content_type_of,
    name_in,
    named_digest,
    sha256_of,
    text_in,
)
from ductile_gateway.calls.call import Asked, ToolOutcome, failed
from ductile_gateway.ports import Artifacts, Ledger
from schemas.catalog import ToolCommand

_CHANGED = (
    "{argument}: what is stored as {path} is not what its tool made, by its SHA-256: somebody has replaced it, and the "
    "tool was not given it"
)

log = logging.getLogger(__name__)


class Contents:
    def __init__(self, artifacts: Artifacts, ledger: Ledger) -> None:
        self._artifacts = artifacts
        self._ledger = ledger

    async def into(self, asked: Asked, command: ToolCommand) -> dict[str, JsonValue] | ToolOutcome:
        request = asked.request
        payload = dict(request.tool_payload)
        for argument, path in artifact_arguments(command, payload).items():
            name = name_in(path) or ""
            content = await self._artifacts.get(request.run_id, name)
            if content is None:
                return failed("not_found", f"{argument}: this run has no artifact {path}", retryable=False)
            recorded = await self._ledger.digest_of(request.run_id, name) or named_digest(name)
            if not sha256_of(content).startswith(recorded):
                log.error("an artifact was replaced", extra=asked.facts() | {"path": path})
                return failed("artifact_changed", _CHANGED.format(argument=argument, path=path), retryable=False)
            text = text_in(name, content)
            if text is None:
                return failed("invalid_arguments", f"{argument}: {path} is not text", retryable=False)
            payload[argument] = {"path": path, "content_type": content_type_of(name), "text": text}
        return payload
