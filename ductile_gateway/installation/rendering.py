"""Files of an installation, rendered from the templates in deploy/ductile/added.

No secret is an environment variable: Ductile (m) passes its environment to every plugin. Each reader has its own file.
"""

import json
import os
import secrets as randomness
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2

from ductile_gateway.installation.configuration import DuctileConfig, Generation
from ductile_gateway.tools.catalog import HOUSEKEEPING
from groundwork.service.errors import Misconfigured
from groundwork.service.program import shipped
from groundwork.service.secret import secret_fault
from schemas.values import dataclass

_READING = {
    "m": ["plugin:ro", "jobs:ro", "events:ro"],
    "n": ["plugin:catalog:ro", "plugin:invoke:ro", "jobs:ro", "events:meta:ro"],
}
_WRITING = {"m": ["plugin:rw", "jobs:ro", "events:ro"], "n": ["plugin:rw", *_READING["n"]]}


@dataclass(frozen=True, kw_only=True)
class Options:
    """`settings`: the file of agent and gateway. `every`, `cron`: schedule of `goal`."""

    agent: str = "http://127.0.0.1:8700"
    gateway: str = "http://127.0.0.1:8710"
    settings: Path = Path("agentic.yaml")
    generation: Generation | None = None
    writes: bool = False
    answers: bool = False
    webhook: bool = False
    outcomes: Path | None = None
    goal: str | None = None
    every: str | None = None
    cron: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Wanted content of a file; None deletes it. `shown`: a diff is printed, otherwise the name only."""

    path: Path
    text: str | None = field(repr=False)
    mode: int = 0o644
    shown: bool = False


def template_values(ductile: DuctileConfig, options: Options, tokens: Path) -> dict[str, Any]:
    """Variables of the templates. `tokens`: the file with Ductile's secrets (m). Raises Misconfigured."""
    generation = ductile.generation(options.generation)
    folder = options.settings.absolute().parent / ".agentic" / "secrets"
    names = ["gateway", "relay", "wake", "run", *["webhook"] * options.webhook]
    places = {name: folder / f"{ductile.name}.{name}" for name in names} | {"people": folder / "people"}
    return {
        "ductile": ductile,
        "options": options,
        "generation": generation,
        "scopes": (_WRITING if options.writes else _READING)[generation],
        "tokens_file": os.path.relpath(tokens, ductile.agentic_folder),
        "tools": _commands(ductile, "read"),
        "writing": _commands(ductile, "write"),
        "places": places,
        "secrets": {name: _secret(place) for name, place in places.items()},
    }


def _secret(place: Path) -> str:
    if not place.exists():
        return randomness.token_hex(32)
    try:
        secret = place.read_text(encoding="utf-8").strip()
        fault = secret_fault(secret)
    except (OSError, UnicodeDecodeError) as error:
        fault = f"cannot be read: {error}"
    if fault:
        raise Misconfigured(f"{place} {fault}; or delete it, and another is made")
    return secret


def ductile_files(folder: Path, tokens: Path, values: Mapping[str, Any]) -> Iterator[Change]:
    pages = ["agentic.yaml", "yours.yaml", *["outcomes.yaml"] * bool(values["options"].outcomes)]
    yield from (Change(folder / name, render(name, values), shown=True) for name in pages)
    if values["generation"] == "m":
        for place in (folder / "secrets.yaml", tokens):
            yield Change(place, render(place.name, values), 0o600, shown=True)
        yield from (Change(folder / f"{name}.token", f"{values['secrets'][name]}\n", 0o600) for name in ("wake", "run"))
    for plugin in ("agentic-wake", "agentic-run"):
        for file in filter(Path.is_file, sorted(shipped("deploy", "ductile", "plugins", plugin).iterdir())):
            mode = 0o755 if file.name == "run.py" else 0o644
            yield Change(folder / "plugins" / plugin / file.name, file.read_text(encoding="utf-8"), mode)


def render(template: str, values: Mapping[str, Any]) -> str:
    environment = jinja2.Environment(
        autoescape=False,  # noqa: S701 - templates of YAML, in which every value is written as JSON
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False, default=str)
    environment.filters |= {"quote": lambda value: shlex.quote(str(value)), "port": _port}
    text = shipped("deploy", "ductile", "added", f"{template}.jinja").read_text(encoding="utf-8")
    return environment.from_string(text).render(values)


def _commands(ductile: DuctileConfig, tier: str) -> dict[str, list[str]]:
    commands = {
        name: [each.name for each in manifest.commands if each.type == tier and each.name not in HOUSEKEEPING]
        for name, manifest in sorted(ductile.manifests().items())
    }
    return {name: some for name, some in commands.items() if some}


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
