"""The output of commands: drawings for people, JSON for programs. JSON escapes what could steer a terminal."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import typer
from rich.console import Console, RenderableType

from groundwork.service import json_log
from groundwork.service.errors import ClosedPipe, Exit, NotDone
from groundwork.service.invisible import json_visible, visible
from schemas.values import dataclass

WIDTH_OF_A_FILE = 120
"""Columns of what is drawn into a file or pipe."""

T = TypeVar("T")


def console(*, stderr: bool = False) -> Console:
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = WIDTH_OF_A_FILE
    return made


def draw(*drawings: RenderableType, wrap: bool = True) -> None:
    """For people, to standard output. Without `wrap` a line stays one, however long."""
    drawer = console()
    with drawer.capture() as captured:
        for drawing in drawings:
            drawer.print(drawing, soft_wrap=not wrap)
    _write(captured.get())


def document(value: Any) -> None:
    _write(as_json(value) + "\n")


def as_json(value: Any) -> str:
    return json_visible(json.dumps(value, ensure_ascii=False))


def content(found: bytes, name: str) -> None:
    """A file as it is; on a terminal with nothing that could steer it. Raises NotDone for what is no text there."""
    if not sys.stdout.isatty():
        _write(found)
        return
    try:
        text = found.decode()
    except UnicodeDecodeError as error:
        message = f"{name} is not text ({len(found):,} bytes): print it into a file, with `> FILE`"
        raise NotDone(message, Exit.USAGE) from error
    draw(visible(text).removesuffix("\n"), wrap=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command: `facts` for programs; for people a text, or a drawing, or a function that makes one of
    the facts. Texts and such facts are made safe to be shown."""

    facts: Any
    told: RenderableType | Callable[[Any], RenderableType]
    code: Exit = Exit.OK


def awaited(work: Coroutine[Any, Any, T]) -> T:
    """Does the work of a command; of its log only errors are shown."""
    json_log.set_up("ERROR", "text")
    return asyncio.run(work)


def end(outcome: Outcome, *, as_json: bool) -> None:
    tell(outcome.facts, outcome.told, as_json=as_json)
    if outcome.code:
        raise typer.Exit(outcome.code)


def tell(facts: Any, told: RenderableType | Callable[[Any], RenderableType], *, as_json: bool) -> None:
    """One answer in one of the two forms."""
    if as_json:
        document(facts)
        return
    drawn = told(safe(facts)) if callable(told) else told
    if isinstance(drawn, str):
        draw(visible(drawn), wrap=False)
    else:
        draw(drawn)


def line(facts: Any, told: Callable[[Any], RenderableType], *, as_json: bool) -> None:
    """One of many answers, which has a line of its own, however long."""
    if as_json:
        document(facts)
    else:
        draw(told(safe(facts)), wrap=False)


def safe(value: Any) -> Any:
    """A copy in which every text is safe to be shown: what could steer a terminal is visible in it."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): safe(item) for key, item in value.items()}
    return [safe(item) for item in value] if isinstance(value, list) else value


def complain(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 # the one way out for complaints


def asked(prompt: str) -> str:
    """Raises EOFError, and KeyboardInterrupt for Ctrl-C."""
    print(f"{prompt}> ", end="", file=sys.stderr, flush=True)  # noqa: T201 # see `complain`
    return input().strip()


def _write(found: str | bytes) -> None:
    try:
        if isinstance(found, str):
            sys.stdout.write(found)
        else:
            sys.stdout.buffer.write(found)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ClosedPipe from error
