"""The examples that the program brings along: which there are, and a copy of one to try."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from groundwork.service.errors import Misconfigured
from groundwork.service.installed import shipped

LEFT_BY_TRIALS = (".agentic", "__pycache__")


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    title: str


class NoSuchExample(Exception):
    """The message says which there are."""


def examples() -> Iterator[Example]:
    for page in sorted(shipped("examples").glob("*/README.md")):
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        yield Example(page.parent.name, title)


def copy(name: str, into: Path) -> Path:
    """A copy in a new folder of that name. Raises NoSuchExample, and Misconfigured where it cannot be written."""
    there = [example.name for example in examples()]
    if name not in there:
        raise NoSuchExample(f"there is no example {name}: there are {', '.join(there)}")
    made = into / name
    try:
        shutil.copytree(shipped("examples", name), made, ignore=shutil.ignore_patterns(*LEFT_BY_TRIALS))
    except FileExistsError as error:
        raise Misconfigured(f"{made} is there already, and nothing was changed: copy it to another folder") from error
    except OSError as error:
        raise Misconfigured(f"{made} cannot be written: {error}") from error
    return made
