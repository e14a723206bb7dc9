"""Writes the contract for readers in any language: a JSON Schema per event, one AsyncAPI document of them all, and the
accounts of a NATS server, which say who may publish and hear what.

`python -m schemas.generate` writes schemas/generated/; `--check` writes nothing and exits 1 where that folder is not
what the models say. What the agent receives is described as it is validated, what it sends as it is serialised.
Published objects are open: fields are added within a version, and no reader with an older copy may break by that.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from schemas import asyncapi, permissions, subjects
from schemas.catalog import Catalog
from schemas.continuation import CONTINUATION
from schemas.events import INBOUND, OUTBOUND
from schemas.status import GatewayStatus

Json = dict[str, Any]

VERSION = "v1"
GENERATED = Path(__file__).with_name("generated")
SAMPLES = Path(__file__).with_name("samples")
ACCOUNTS = "nats-accounts.conf"
MODELS: dict[str, type[BaseModel]] = {
    **INBOUND,
    **OUTBOUND,
    subjects.CATALOG: Catalog,
    subjects.STATUS: GatewayStatus,
}


def main(argv: Sequence[str] | None = None, folder: Path = GENERATED) -> None:
    """The command line. Raises SystemExit: 1 where `--check` finds a difference, 2 for unknown arguments."""
    parser = argparse.ArgumentParser(prog="python -m schemas.generate", description="Write schemas/generated/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the folder is not fresh")
    if not parser.parse_args(argv).check:
        write(folder)
    elif found := differences(folder):
        listed = "\n".join(f"  {line}" for line in found)
        raise SystemExit(f"{folder} is not fresh:\n{listed}\nRun `python -m schemas.generate` and commit it.")


def write(folder: Path) -> None:
    wanted = documents()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in wanted.items():
        (folder / name).write_bytes(content)
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()


def differences(folder: Path) -> list[str]:
    wanted = documents()
    found = {path.name: path.read_bytes() for path in folder.glob("*")}
    missing = [f"missing: {name}" for name in wanted.keys() - found.keys()]
    extra = [f"extra: {name}" for name in found.keys() - wanted.keys()]
    differs = [f"differs: {name}" for name in wanted.keys() & found.keys() if wanted[name] != found[name]]
    return sorted([*missing, *extra, *differs])


def documents() -> dict[str, bytes]:
    files = {f"{name}.{VERSION}.json": _json_schema(name) for name in MODELS}
    bodies = {name: _body(name, asyncapi.REFS) for name in MODELS}
    files["asyncapi.json"] = asyncapi.document(bodies, {name: _samples(name) for name in MODELS})
    texts = {name: _text(document) for name, document in files.items()}
    return {**texts, ACCOUNTS: permissions.accounts(permissions.SHIPPED, permissions.key_variable).encode()}


def _text(document: Json) -> bytes:
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _json_schema(name: str) -> Json:
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:agentic-loop:{name}:{VERSION}",
        "title": name,
    }
    return head | _body(name, "#/$defs/{model}")


def _body(name: str, refs: str) -> Json:
    mode: Literal["serialization", "validation"] = "serialization" if name in OUTBOUND else "validation"
    schema: Json = _published(MODELS[name].model_json_schema(mode=mode, ref_template=refs))
    if name == subjects.TOOL_RESULT:
        _with_continuation(schema["$defs"], refs)
    if name not in asyncapi.ANSWERED:
        schema["properties"]["type"] = _type(name)
    return schema


def _with_continuation(models: Json, refs: str) -> None:
    schema = _published(CONTINUATION.json_schema(ref_template=refs))
    models |= schema.pop("$defs") | {"Continuation": schema}
    models["ToolOutput"]["properties"]["continuation"] = {"$ref": refs.format(model="Continuation")}


def _published(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_published(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _published(value) for key, value in schema.items() if key != "title" or isinstance(value, dict)}
    kept.pop("discriminator", None)
    return {key: value for key, value in kept.items() if key != "additionalProperties" or value is not False}


def _type(event: str) -> Json:
    if event != subjects.TOOL_REQUEST:
        return {"type": "string", "const": event}
    return {"type": "string", "pattern": f"^{re.escape(event)}\\.{subjects.NAME.pattern.removeprefix('^')}"}


def _samples(name: str) -> Json:
    paths = SAMPLES.glob(f"{name}*.{VERSION}.json")
    return {path.stem: json.loads(path.read_bytes()) for path in sorted(paths)}


if __name__ == "__main__":
    main()
