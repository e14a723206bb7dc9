"""Logging to standard error: one line per record, as JSON or as text for people.

Configured secrets become ***, and characters that could forge a line or control a terminal become visible escapes.
"""

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from groundwork.service.invisible import HIDDEN
from groundwork.service.secret import spellings

STACK_FRAMES = 8
EVERY_REQUEST = ("httpx2", "httpcore2")
"""Libraries that log every request: polling a job would fill the log."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_UNSAFE = re.compile(rf"[\x00-\x1f\x7f-\x9f{HIDDEN}]")
_ESCAPES = re.compile(r"(?:\\u[0-9a-f]{4}|\\.|\x7f)+")
"""Escapes in JSON, in which all other characters are printable ASCII."""

Fields = dict[str, Any]


def set_up(
    level: int | str,
    format: Literal["json", "text"],  # noqa: A002 - the setting has this name
    *,
    redact: Collection[str] = (),
    aside: Collection[str] = (),
) -> None:
    """Replaces all handlers. `redact`: values of at least 8 characters that never appear. `aside`: fields left out of
    text for people."""
    handler = logging.StreamHandler(sys.stderr)
    for_people = partial(as_text, aside=aside) if format == "text" else None
    handler.setFormatter(_CleanFormatter(redact, for_people))
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level)
    for talkative in EVERY_REQUEST:
        logging.getLogger(talkative).setLevel(max(logging.WARNING, logging.root.level))
    logging.raiseExceptions = False  # else logging prints records that it failed to write, uncleaned
    for unread in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(logging, unread, False)  # unused, and looked up for every record (Logging HOWTO, Optimization)


def as_text(fields: Fields, *, aside: Collection[str] = ()) -> str:
    """Text for people of the fields of a JSON line. Raises KeyError if these are not of a log line."""
    ts, level, logger, msg = (fields.pop(name) for name in ("ts", "level", "logger", "msg"))
    stack = fields.pop("exception", {"stack": []})["stack"]
    more = fields if "logger" in aside and level == "INFO" else fields | {"logger": logger}
    known = {name: value for name, value in more.items() if value is not None and name not in aside}
    extras = "".join(f" {name}={_quoted(value)}" for name, value in known.items())
    return "\n    ".join([f"{ts.replace('T', ' ')} {level:<8} {msg}{extras}", *stack])


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and " " not in text else json.dumps(text, ensure_ascii=False)


class _CleanFormatter(logging.Formatter):
    """Formats a record as JSON without secrets and control characters; `for_people` makes text of that."""

    def __init__(self, redact: Collection[str], for_people: Callable[[Fields], str] | None) -> None:
        super().__init__()
        self._for_people = for_people
        self._secret = spellings(tuple(redact), in_json=True)

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields: Fields = {"ts": at, "level": record.levelname, "logger": record.name, "msg": _message(record)}
        if record.exc_info and (error := record.exc_info[1]):
            trace = traceback.TracebackException(type(error), error, error.__traceback__, limit=-STACK_FRAMES)
            stack = [line for part in trace.format() for line in part.splitlines()]
            fields["exception"] = {"type": type(error).__qualname__, "text": _text(error), "stack": stack}
        fields |= {name: value for name, value in vars(record).items() if name not in fields and name not in _STANDARD}
        try:
            line = _WRITTEN(fields)
        except (ValueError, TypeError, RecursionError):  # a cycle, NaN, or a key that is no text
            line = _WRITTEN({name: value if name == "exception" else _text(value) for name, value in fields.items()})
        line = _ESCAPES.sub(_visible, self._secret.sub("***", line))
        return self._for_people(json.loads(line)) if self._for_people else line


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a wrong log call must not stop the program, nor print its arguments
        return f"the log call at {record.pathname}:{record.lineno} does not fit its arguments"


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - any object may be logged, even one whose __str__ fails
        return f"<{type(value).__qualname__}>"


_WRITTEN = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_text).encode


def _visible(escapes: re.Match[str]) -> str:
    text = json.loads(f'"{escapes[0]}"')
    return json.dumps(_UNSAFE.sub(lambda one: one[0].encode("unicode_escape").decode("ascii"), text))[1:-1]


class Outage:
    """Logs the begin and the end of an outage of `what`, such as `NATS`. `why` is empty while there is none."""

    def __init__(self, what: str, log: logging.Logger) -> None:
        self._what = what
        self._log = log
        self._since = 0.0
        self.why = ""

    def continues(self, why: str) -> None:
        if not self.why:
            self._since = time.monotonic()
            self._log.warning("%s is away", self._what, extra={"event": "outage_began", "why": why})
        self.why = why

    def over(self) -> None:
        if self.why:
            facts = {"event": "outage_over", "away_s": round(time.monotonic() - self._since, 1), "why": self.why}
            self._log.warning("%s is back", self._what, extra=facts)
        self.why = ""
