"""Parameters of calls, and what both transports (HTTP, the bus) share."""

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict, cast
from urllib.parse import quote

from agentic_client.errors import AgenticError, Broken, Invalid, NotAllowed, TryAgain
from agentic_client.views import Accepted, Run, RunLine, Status
from schemas.operations import Operation

Json = dict[str, Any]
Query = Mapping[str, str | int | float | tuple[str, ...]]
Path = Mapping[str, str]
ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S = 20.0, 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
ID_OF = {"wake": "wake_id"} | dict.fromkeys(("rule_on_run", "answer_run", "signal_run"), "signal_id")
HERE = "http://127.0.0.1:8700"
_PARTS = {
    "run_id": (re.compile(r"\w+", re.ASCII), "id of a run: give the `run_id` that an answer had"),
    "path": (
        re.compile(r"(?!\.{1,2}(/|$))[^/\ud800-\udfff]+(/(?!\.{1,2}(/|$))[^/\ud800-\udfff]+)*"),
        "path of a file of a run: give one of the list of its files",
    ),
}


class Answer(Json):
    """An answer of the agent. Raises Broken for a field that it lacks."""

    def __missing__(self, field: str) -> Any:
        raise Broken(f"the answer has no `{field}`: is this the address of an agent, and is none much older?")


class LimitOptions(TypedDict, total=False):
    """Limits of a run. A missing limit is the agent's default; the agent's caps hold in any case."""

    max_steps: int
    max_tokens: int
    max_cost_usd: float
    max_reframes: int
    deadline_at: datetime


class WakeOptions(LimitOptions, total=False):
    """Options of a wake. `untrusted`: goal or context hold untrusted content."""

    wake_id: str
    context: Mapping[str, Any]
    callback: str
    untrusted: bool
    by: str
    parent_run_id: str
    depth: int


class AnswerOptions(LimitOptions, total=False):
    """Options of an answer. `outcome` settles a write in doubt. With the `question_hash` or the `step` of `Run.asks`,
    nothing newer is answered."""

    outcome: Literal["ran", "did_not_run", "look"]
    question_hash: str | None
    step: int | None
    signal_id: str
    by: str


class RulingOptions(TypedDict, total=False):
    """Options of an approval or a rejection. `arguments_hash` and `step` are those of `Run.asks`."""

    arguments_hash: str | None
    step: int | None
    reason: str
    signal_id: str
    by: str


class ListOptions(TypedDict, total=False):
    """Filter of a list of runs: `text` in goal, summary or id; runs that use `tool`; runs accepted `since`."""

    status: Status | Sequence[Status]
    text: str
    tool: str
    since: datetime
    limit: int
    cursor: str | None


Notice = Callable[[AgenticError | None], object]
RunRef = str | Accepted | Run | RunLine


def path_of(run: RunRef, **parts: str) -> Path:
    """Path parameters of a run. Raises Invalid for text that could address something else."""
    path = {"run_id": run if isinstance(run, str) else run.run_id, **parts}
    for name, part in path.items():
        form, what = _PARTS[name]
        if not form.fullmatch(part):
            raise Invalid(f"{part!r} is no {what}", code="invalid", field=name)
    return path


def filled(operation: Operation, path: Path) -> str:
    """Path of the operation. Raises Invalid without one of its parameters."""
    quoted = {name: quote(part, safe="/" if name == "path" else "") for name, part in path.items()}
    try:
        return operation.path.format(**quoted)
    except KeyError as error:
        raise Invalid(f"{operation.name} needs path parameter {error}", code="invalid", field=error.args[0]) from error


def address_of(url: str | None) -> str:
    """Returns the agent's address. Raises Invalid for one that is none."""
    address = url or os.environ.get("AGENTIC_URL") or HERE
    if not address.startswith(("http://", "https://", "nats://", "tls://", "ws://", "wss://")):
        raise Invalid("an agent's address begins with http:// (its API) or nats:// (its bus)")
    return address.rstrip("/") if address.startswith("http") else address


def token_of(token: str | None) -> str | None:
    """Returns the given token or AGENTIC_TOKEN. Raises NotAllowed for text that cannot be a token."""
    given = token or os.environ.get("AGENTIC_TOKEN")
    if given and (not given.isascii() or not given.isprintable() or " " in given):
        raise NotAllowed("the token has characters that no token has: is there a line end in it?")
    return given


def as_json(given: Mapping[str, Any]) -> Json:
    """Returns the fields that have a value. Raises Invalid for one that JSON cannot hold."""
    for name, value in given.items():
        try:
            json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            what = "UTF-8 text" if isinstance(error, UnicodeError) else "JSON, which has no NaN"
            raise Invalid(f"{name} cannot be sent (it is not {what})", code="invalid", field=name) from error
    return {name: value for name, value in given.items() if value is not None}


def body_of(goal: str | None, options: WakeOptions | AnswerOptions) -> Json:
    given = {name: _plain(value) for name, value in cast("Mapping[str, Any]", options).items()}
    limits = {name: given.pop(name) for name in LimitOptions.__annotations__ if name in given}
    start = {} if goal is None else {"goal": goal}
    return start | given | ({"constraints": limits} if limits else {})


def filters_of(filters: ListOptions) -> Query:
    given = cast("Mapping[str, Any]", filters).items()
    return {name: _plain(value) for name, value in given if value not in (None, (), "")}


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


class Patience(AbstractAsyncContextManager["Patience"]):
    """Waits after a TryAgain and suppresses it, until `patience_s` seconds without an answer have passed."""

    def __init__(self, patience_s: float, notice: Notice) -> None:
        self._patience_s, self._notice = patience_s, notice
        self._ends_at: float | None = None
        self._pause_s = FIRST_PAUSE_S

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if error is None:
            self.over()
        if not isinstance(error, TryAgain):  # waiting mends nothing else
            return False
        now, pause_s = time.monotonic(), max(self._pause_s, error.retry_after_s or 0.0)
        ends_at = self._ends_at or now - error.silent_s + self._patience_s
        if now + pause_s > ends_at:
            return False
        if self._ends_at is None:
            self._notice(error)
        self._ends_at = ends_at
        await asyncio.sleep(pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return True

    def over(self) -> None:
        if self._ends_at is not None:
            self._notice(None)
        self._ends_at, self._pause_s = None, FIRST_PAUSE_S
