"""What came of a call by hand, for people and for programs."""

import json
from pathlib import Path
from typing import Any

from ductile_gateway.authoring.calling import Called
from ductile_gateway.calls.results import Kept, output_of
from groundwork.service.errors import Misconfigured


def as_document(called: Called) -> dict[str, Any]:
    outcome = called.outcome
    told: dict[str, Any] = {"status": outcome.status, "seconds": round(called.seconds, 3), "stderr": called.stderr}
    if outcome.status == "error":
        error = {"class": outcome.error_class, "message": outcome.message, "retryable": outcome.retryable}
        return told | {"error": error}
    return told | {"result": output_of(outcome, called.kept).model_dump(mode="json", exclude_none=True)}


def as_text(called: Called) -> str:
    outcome = called.outcome
    if outcome.status == "error":
        again = "another try may help" if outcome.retryable else "another try does not help"
        lines = [f"✗ {outcome.error_class} after {called.seconds:.2f} s ({again})", outcome.message or ""]
    else:
        lines = [f"✓ {outcome.status} after {called.seconds:.2f} s", outcome.text]
    if outcome.continuation:
        lines.append(f"continuation: {outcome.continuation.model_dump_json(exclude_none=True)}")
    if outcome.output:
        lines.append(f"output: {json.dumps(dict(outcome.output), ensure_ascii=False)}")
    lines += [f"artifact: {_line(one)}" for one in called.kept]
    if called.stderr.strip():
        lines.append(f"on standard error:\n{called.stderr.strip()}")
    return "".join(f"{line}\n" for line in lines if line)


def keep(called: Called, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in called.kept:
            (folder / one.name).write_bytes(one.artifact.content)
    except OSError as error:
        raise Misconfigured(f"{error.filename} cannot be written: {error.strerror}") from error


def _line(one: Kept) -> str:
    return f"{one.name} ({one.artifact.content_type}, {len(one.artifact.content)} bytes)"
