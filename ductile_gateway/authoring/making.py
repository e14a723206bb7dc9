"""A first plugin to begin with, and advice on plugins that work."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from ductile_gateway.plugins.folders import MANIFEST, InstalledPlugin
from ductile_gateway.plugins.manifest import Command, Manifest
from ductile_gateway.tools.catalog import HOUSEKEEPING
from schemas import subjects

TEMPLATES = "templates"


class Language(StrEnum):
    PYTHON = "python"
    BASH = "bash"
    NODE = "node"


PROGRAMS = {Language.PYTHON: "run.py", Language.BASH: "run.sh", Language.NODE: "run.mjs"}
EXAMPLE = '{"text": "one two three"}'


class CannotMake(Exception):
    """Nothing was made; the message says why."""


def make(name: str, language: Language, folder: Path) -> Path:
    if not subjects.NAME.fullmatch(name):
        raise CannotMake(f"{name!r} is no name for a tool: lower case letters, digits, `-` and `_`, at most 64")
    if name in subjects.OUR_OWN_ROUTES:
        raise CannotMake(f"{name} is the name of a part of the program itself: choose another")
    made = folder / name
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        made.mkdir(mode=0o755)
        for path, text in _contents(made, language):
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if path.name == PROGRAMS[language] else 0o644)
    except FileExistsError as error:
        raise CannotMake(f"{error.filename} is there already: nothing was changed") from error
    except OSError as error:
        raise CannotMake(f"{error.filename} cannot be written: {error.strerror}") from error
    return made


def _contents(made: Path, language: Language) -> Iterator[tuple[Path, str]]:
    program = PROGRAMS[language]
    named = {"name": made.name, "program": program, "folder": str(made.parent)}
    templates = files(__package__).joinpath(TEMPLATES)
    for folder in (templates, templates / language.value):
        for template in (each for each in folder.iterdir() if each.is_file()):
            text = template.read_text(encoding="utf-8")
            for key, value in named.items():
                text = text.replace("{{" + key + "}}", value)
            yield made / template.name, text


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
