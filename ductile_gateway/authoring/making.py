"""A first plugin to begin with: a manifest, a program in a language of one's choice, and a script that calls it."""

from collections.abc import Iterator
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

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
