"""Advice on plugins that work: what a model is not told, keys that mean nothing, folders without a plugin."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from ductile_gateway.plugins.folders import MANIFEST, InstalledPlugin
from ductile_gateway.plugins.manifest import Command, Manifest
from ductile_gateway.tools.catalog import HOUSEKEEPING

OF_DUCTILE = ("concurrency_safe", "values", "output_schema", "schedule", "metadata")
"""Keys that a Ductile reads and we do not."""

ALIKE = 0.75
UNDECLARED = (
    "its results count as untrusted, and writes after them wait for a person: say `output: trusted`, or "
    "`output: untrusted` where they hold pages, mails or other texts from outside"
)


def advice(plugins: Mapping[str, InstalledPlugin], roots: Iterable[Path]) -> Iterator[str]:
    for plugin in plugins.values():
        place = plugin.folder / MANIFEST
        yield from (f"{place}: {flaw}" for flaw in (*_untold(plugin.manifest), *_misspelt(place)))
    for root in roots:
        yield from _no_plugins(root)


def _untold(manifest: Manifest) -> Iterator[str]:
    if not manifest.description:
        yield "no `description`: the model is not told what the tool is for"
    if manifest.output is None:
        yield f"no `output`: {UNDECLARED}"
    for command in manifest.commands:
        if command.name not in HOUSEKEEPING:
            yield from (f"command {command.name} has {flaw}" for flaw in _missing_in(command))


def _missing_in(command: Command) -> Iterator[str]:
    if not command.description:
        yield "no `description`: the model is not told what it does"
    if not command.input_schema:
        yield "no `input_schema`: the model is not told its arguments, and none are checked"


def _misspelt(place: Path) -> Iterator[str]:
    document = yaml.safe_load(place.read_text(encoding="utf-8"))
    sections = [("", document, Manifest)] + [
        (f"command {command.get('name')}: ", command, Command) for command in document["commands"]
    ]
    for where, section, model in sections:
        names = {*model.model_fields, *OF_DUCTILE}
        for key in section.keys() - names:
            for meant in difflib.get_close_matches(str(key), names - section.keys(), n=1, cutoff=ALIKE):
                yield f"{where}the key `{key}` means nothing: did you mean `{meant}`?"


def _no_plugins(root: Path) -> Iterator[str]:
    if (root / MANIFEST).exists():
        return
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] not in "._"):
        if not (folder / MANIFEST).exists():
            other = next((f" (rename {file.name})" for file in folder.glob("manifest.y*ml")), "")
            yield f"{folder}: no {MANIFEST} is in it, so it is no plugin{other}"
