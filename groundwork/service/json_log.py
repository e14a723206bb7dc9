"""Logging of a service on standard error: one line per record, as JSON for machines or as text for people.

Configured secrets become ***, and characters that could forge a line or steer a terminal become visible escapes.
"""

import json
import logging
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Literal
from urllib.parse import quote

from groundwork.service.invisible import HIDDEN

SHORTEST_SECRET = 8
LOOK_EVERY_S = 1.0
STACK_FRAMES = 8
NESTING = 6
MOST_NAMES = 1024
EVERY_REQUEST = ("httpx2", "httpcore2")
"""Libraries that tell of every request: a job that is waited for would fill the log, and so could whoever answers."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_UNSAFE = re.compile(rf"[\x00-\x1f\x7f-\x9f{HIDDEN}]")

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_COLOURS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}
_WRITTEN = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode

Secrets = Callable[[], Collection[str]]
Fields = dict[str, Any]


def set_up(
    level: int | str,
    format: Literal["json", "text"],  # noqa: A002 - the setting has this name
    *,
    redact: Secrets,
    aside: Collection[str] = (),
) -> None:
    """In place of all handlers. `redact`, asked once a second: values of at least 8 characters that never appear.
    `aside`: fields left out of text for people."""
    painted = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    handler = logging.StreamHandler(sys.stderr)
    for_people = partial(as_text, aside=aside, painted=painted)
    handler.setFormatter(_Lines(_WRITTEN if format == "json" else for_people, redact))
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level)
    for talkative in EVERY_REQUEST:
        logging.getLogger(talkative).setLevel(max(logging.WARNING, logging.root.level))
    logging.raiseExceptions = False  # what logging prints about a record it failed to write is not cleaned
    for unread in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(logging, unread, False)  # each is found out for every record (Logging HOWTO, Optimization)


def as_text(fields: Fields, *, aside: Collection[str] = (), painted: bool = False) -> str:
    """The line of a record for people; `fields` as its line for machines has them. Raises KeyError for other fields."""
    ts, level, logger, msg = (fields.pop(name) for name in ("ts", "level", "logger", "msg"))
    stack = fields.pop("exception", {"stack": []})["stack"]
    more = fields if "logger" in aside and level == "INFO" else fields | {"logger": logger}
    known = {name: value for name, value in more.items() if value is not None and name not in aside}
    extras = "".join(f" {name}={_quoted(value)}" for name, value in known.items())
    dim, colour, plain = (_DIM, _COLOURS.get(level, ""), _PLAIN) if painted else ("", "", "")
    when = ts.replace("T", " ")
    return "\n    ".join([f"{dim}{when}{plain} {colour}{level:<8}{plain} {msg}{dim}{extras}{plain}", *stack])


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and " " not in text else json.dumps(text, ensure_ascii=False)


class _Lines(logging.Formatter):
    """Cleans each text of the secrets that there are now or were before, and of what could steer a terminal."""

    def __init__(self, layout: Callable[[Fields], str], redact: Secrets) -> None:
        super().__init__()
        self._layout = layout
        self._redact = redact
        self._known: frozenset[str] = frozenset()
        self._secret = re.compile("(?!)")  # without secrets: never matches
        self._look_at = float("-inf")
        self._name = lru_cache(MOST_NAMES)(self._clean)

    def format(self, record: logging.LogRecord) -> str:
        if time.monotonic() >= self._look_at:
            self._look()
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        name, msg = self._name(record.name), self._clean(_message(record))
        fields: Fields = {"ts": at, "level": record.levelname, "logger": name, "msg": msg}
        if record.exc_info and (error := record.exc_info[1]):
            told = traceback.TracebackException(type(error), error, error.__traceback__, limit=-STACK_FRAMES)
            stack = [line for part in told.format() for line in part.splitlines()]
            known = {"type": type(error).__qualname__, "text": _text(error), "stack": stack}
            fields["exception"] = self._plain(known, NESTING)
        for name, value in vars(record).items():
            if name not in _STANDARD:
                fields.setdefault(self._name(name), self._plain(value, NESTING))
        return self._layout(fields)

    def _plain(self, value: object, nesting: int) -> Any:
        """`value`, cleaned, as JSON can hold it; what is nested deeper, or is of another type, as text."""
        match value:
            case str():
                return self._clean(value)
            case None | bool() | int():
                return value
            case float() if math.isfinite(value):
                return value
            case dict() if nesting:
                return {self._clean(_text(key)): self._plain(item, nesting - 1) for key, item in value.items()}
            case list() | tuple() | set() | frozenset() if nesting:
                return [self._plain(item, nesting - 1) for item in value]
        return self._clean(_text(value))

    def _clean(self, text: str) -> str:
        shown = self._secret.sub("***", text)
        return shown if shown.isascii() and shown.isprintable() else _UNSAFE.sub(_visible, shown)

    def _look(self) -> None:
        self._look_at = time.monotonic() + LOOK_EVERY_S  # first, for whoever tells secrets may log something
        known = self._known.union(self._redact())
        if known != self._known:
            lines = (part for secret in known for part in (secret, *secret.splitlines()))
            parts = {form for part in lines if len(part) >= SHORTEST_SECRET for form in _forms(part)}
            forms = sorted(parts, key=len, reverse=True)
            self._known, self._secret = known, re.compile("|".join(map(re.escape, forms)) or "(?!)")


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a wrong log call must not stop the program, nor print its arguments
        return f"the log call at {record.pathname}:{record.lineno} does not fit its arguments"


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - anything may be logged, also what cannot be shown
        return f"<{type(value).__qualname__}>"


def _forms(secret: str) -> tuple[str, ...]:
    """As it is, inside the `repr` of text and of bytes, inside JSON, and in a URL."""
    raw = secret.encode(errors="surrogatepass")
    return secret, repr(secret)[1:-1], repr(raw)[2:-1], json.dumps(secret)[1:-1], quote(raw, safe="")


def _visible(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class Outage:
    """Of one thing, by its name for people, such as `NATS`. `why` is empty while it is there."""

    def __init__(self, what: str, log: logging.Logger) -> None:
        self._what = what
        self._log = log
        self._since = 0.0
        self.why = ""

    def goes_on(self, why: str) -> None:
        """It was met, perhaps for the first time. `why` is no empty text."""
        if not self.why:
            self._since = time.monotonic()
            self._log.warning("%s is away", self._what, extra={"event": "outage_began", "why": why})
        self.why = why

    def over(self) -> None:
        if self.why:
            facts = {"event": "outage_over", "away_s": round(time.monotonic() - self._since, 1), "why": self.why}
            self._log.warning("%s is back", self._what, extra=facts)
        self.why = ""
