"""Advice on plugins that work: what a model is not told, keys that mean nothing, folders without a plugin."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from ductile_gateway.plugins.folders import MANIFEST, InstalledPlugin
from ductile_gateway.plugins.manifest import Command, Manifest
from ductile_gateway.tools.catalog import HOUSEKEEPING

OF_DUCTILE = ("concurrency_safe", "values", "output_schema", "schedule", "metadata")
"""Keys that a Ductile reads and we do not."""
ALIKE = 0.75
LACKING: Mapping[type[BaseModel], Mapping[str, str]] = {
    Manifest: {
        "description": "the model is not told what the tool is for",
        "output": "its results count as untrusted, and writes after them wait for a person: say "
        "`output: trusted`, or `output: untrusted` where they hold pages, mails or other texts from outside",
    },
    Command: {
        "description": "the model is not told what it does",
        "input_schema": "the model is not told its arguments, and none are checked",
    },
}


def advice(plugins: Mapping[str, InstalledPlugin], roots: Iterable[Path]) -> Iterator[str]:
    for place in (plugin.folder / MANIFEST for plugin in plugins.values()):
        document = yaml.safe_load(place.read_text(encoding="utf-8"))
        yield from (f"{place}: {flaw}" for flaw in _flaws(document, Manifest))
        for command in document["commands"]:
            yield from (f"{place}: command {command.get('name')}: {flaw}" for flaw in _flaws(command, Command))
    for root in (root for root in roots if not (root / MANIFEST).exists()):
        for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] not in "._"):
            if not (folder / MANIFEST).exists():
                other = next((f" (rename {file.name})" for file in folder.glob("manifest.y*ml")), "")
                yield f"{folder}: no {MANIFEST} is in it, so it is no plugin{other}"


def _flaws(section: Mapping[str, Any], model: type[BaseModel]) -> Iterator[str]:
    if section.get("name") not in HOUSEKEEPING:
        yield from (f"no `{key}`: {why}" for key, why in LACKING[model].items() if not section.get(key))
    names = {*model.model_fields, *OF_DUCTILE}
    for key in section.keys() - names:
        for meant in difflib.get_close_matches(str(key), names - section.keys(), n=1, cutoff=ALIKE):
            yield f"the key `{key}` means nothing: did you mean `{meant}`?"
