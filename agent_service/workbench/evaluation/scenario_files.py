"""The scenarios there are: those that come along, and those in folders of a user's own."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from agent_service.errors import Misconfigured
from agent_service.workbench.evaluation.scenario import Scenario
from groundwork.service.strict_yaml import NotYaml, parse

SUFFIXES = frozenset({".yaml", ".yml"})


def own_folder() -> Path:
    """Where the scenarios lie that come along."""
    return Path(str(resources.files("agent_service.workbench.evaluation") / "scenarios"))


def scenarios(folders: Iterable[Path], patterns: Sequence[str] = ()) -> list[Scenario]:
    """The scenarios of all files in `folders`, by name; with patterns (`injection-*`) only those that fit one.

    Raises Misconfigured with the file and the field, for a name that two files have, and for a pattern that fits none.
    """
    found: dict[str, tuple[Path, Scenario]] = {}
    for file in (file for folder in folders for file in _files(folder)):
        scenario = read(file)
        if scenario.name in found:
            first = found[scenario.name][0]
            raise Misconfigured(f"{file}: name: {scenario.name} is the name of the scenario in {first}: use another")
        found[scenario.name] = file, scenario
    _check_patterns(patterns, found)
    chosen = (name for name in sorted(found) if not patterns or any(fnmatchcase(name, p) for p in patterns))
    return [found[name][1] for name in chosen]


def read(file: Path) -> Scenario:
    """The scenario in `file`. Raises Misconfigured with every problem and its field."""
    try:
        return Scenario.model_validate(parse(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, NotYaml) as error:
        raise Misconfigured(f"scenario {file} cannot be read: {error}") from error
    except ValidationError as error:
        flaws = (f"{_place(e['loc'])}: {e['msg']}" for e in error.errors(include_input=False, include_url=False))
        raise Misconfigured(f"scenario {file}: {'; '.join(flaws)}") from error


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise Misconfigured(f"{folder} is no folder: name one that holds scenarios as *.yaml")
    return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "the whole"


def _check_patterns(patterns: Sequence[str], found: Iterable[str]) -> None:
    names = sorted(found)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise Misconfigured(f"no scenario is called {pattern!r}; there are: {', '.join(names)}")
