"""Output of commands: text for people, JSON for programs. Both escape characters that could steer a terminal."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TextIO, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from groundwork.service import json_log
from groundwork.service.errors import Exit, NotDone
from groundwork.service.invisible import json_visible, visible
from schemas.values import dataclass

FILE_WIDTH = 120
"""Columns of output to a file or pipe."""

_PADDING = re.compile(" +$", re.MULTILINE)

T = TypeVar("T")
Display = RenderableType | Callable[[Any], RenderableType]
"""A text, a drawing or a function of the facts. Texts, and facts given to the function, are escaped."""


def console(*, stderr: bool = False) -> Console:
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = FILE_WIDTH
    return made


def draw(drawing: RenderableType, *, wrap: bool = True, stderr: bool = False) -> None:
    """Without `wrap` each line stays whole; with it, none ends in blanks of a table."""
    drawer = console(stderr=stderr)
    with drawer.capture() as captured:
        drawer.print(drawing, soft_wrap=not wrap)
    _write(_PADDING.sub("", captured.get()) if wrap else captured.get(), sys.stderr if stderr else sys.stdout)


def hanging(indent: int, *lines: Text) -> Table:
    """Wraps each line beneath its own column `indent`."""
    made = Table.grid()
    made.add_column(width=indent, no_wrap=True)
    made.add_column(overflow="fold")
    for line in lines:
        made.add_row(*line.divide([indent]))
    return made


def draw_line(line: Text, indent: int, *, stderr: bool = False) -> None:
    """Prints a line: whole to a file or pipe, hanging on a terminal."""
    is_terminal = console(stderr=stderr).is_terminal
    draw(hanging(indent, line) if is_terminal else line, wrap=is_terminal, stderr=stderr)


def print_json(value: Any) -> None:
    _write(json_visible(json.dumps(value, ensure_ascii=False)) + "\n", sys.stdout)


def print_file(found: bytes, name: str) -> None:
    """Prints a file as it is; on a terminal its control characters are escaped. Raises NotDone for binary content
    there."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(found)
        sys.stdout.flush()
        return
    try:
        text = found.decode()
    except UnicodeDecodeError as error:
        message = f"{name} is not text ({len(found):,} bytes): print it into a file, with `> FILE`"
        raise NotDone(message, Exit.USAGE) from error
    draw(visible(text).removesuffix("\n"), wrap=False)


@dataclass(frozen=True, slots=True)
class Output:
    """Facts for programs, and their display for people."""

    facts: Any
    display: Display
    exit_code: Exit = Exit.OK


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine; only errors are logged."""
    json_log.set_up("ERROR", "text")
    return asyncio.run(work)


def finish(result: Output, *, as_json: bool) -> None:
    show(result.facts, result.display, as_json=as_json)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def show(facts: Any, display: Display, *, as_json: bool, wrap: bool = True) -> None:
    """Lines of texts stay whole, and without `wrap` those of drawings, too."""
    if as_json:
        print_json(facts)
        return
    drawn = display(safe(facts)) if callable(display) else display
    draw(visible(drawn) if isinstance(drawn, str) else drawn, wrap=wrap and not isinstance(drawn, str))


def safe(value: Any) -> Any:
    """Returns a copy in which every text is escaped for a terminal."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return type(value)({visible(str(key)): safe(item) for key, item in value.items()})
    return [safe(item) for item in value] if isinstance(value, list) else value


def print_error(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 # the one way out for errors


def _write(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()
