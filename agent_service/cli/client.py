"""A running agent, as the commands ask it, through `agentic_client`. What goes wrong is a NotDone."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from agent_service.cli import naming, output
from agent_service.cli.naming import Candidate
from agent_service.cli.whereabouts import address_of
from agentic_client.calls import token_of
from agentic_client.errors import AgenticError, Broken, Unreachable
from agentic_client.over_http import OverHttp, refuse_if_overheard
from groundwork.service.address import without_login
from groundwork.service.exits import Exit, NotDone
from groundwork.service.invisible import visible

AWAY_AT_MOST_S = 300.0
LOOK_AGAIN_S = 0.5
PASSING = (Exit.UNREACHABLE, Exit.TRY_AGAIN)
"""The exit codes of an agent that is away, or starts."""
FINAL = frozenset({"done", "escalated", "failed", "cancelled"})

Json = dict[str, Any]
T = TypeVar("T")


class AgentClient:
    """Calls the agent at `url`, or that of the configuration where it is empty; closed on leaving."""

    def __init__(self, url: str, token: str | None, config: Path | None = None) -> None:
        found = address_of(url, config)
        with _told():
            if token and url:
                refuse_if_overheard(url)
            told = f"{without_login(found.url)}, {found.whence}"
            self._http = OverHttp(found.url, token_of(token), None, told=told)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._done(self._http.close())
        self._runner.close()

    def get(self, path: str, **params: str | int | Sequence[str] | None) -> Json:
        given = {name: value for name, value in params.items() if value is not None}
        return self._done(self._http.call("GET", path, params=given))

    def post(self, path: str, body: Json) -> Json:
        return self._done(self._http.call("POST", path, json=body))

    def content(self, path: str) -> bytes:
        return self._done(self._http.content(path))

    def run(self, run_id: str) -> Json:
        return self.get(run_path(run_id))

    def timeline(self, run_id: str) -> Json:
        return self.get(run_path(run_id, "timeline"))

    def named(self, name: str) -> str:
        """The id of the run that `name` means. Raises NotDone for none, and for several."""
        if naming.is_whole(name):
            return name
        page = self.get("/v1/runs", limit=naming.LOOKED_AT, run=naming.part(name))
        newest = [Candidate(*(str(line.get(part)) for part in ("run_id", "status", "goal"))) for line in page["runs"]]
        return naming.meant(name, newest)

    def run_in_time(self, run_id: str) -> Json:
        absence = _Absence()
        while True:
            try:
                view = self.run(run_id)
            except NotDone as error:
                absence.bear(error)
            else:
                absence.over()
                return view

    def follow(self, run_id: str, after: int = 0) -> Generator[Json, None, None]:
        """The run's entries after entry `after`, each once, to its end, through restarts of the agent."""
        status = ""
        for entry in self._followed(run_path(run_id, "events"), after, "seq"):
            if entry is not None:
                status = entry["status"]
                yield entry
            elif status in FINAL or self.run_in_time(run_id)["status"] in FINAL:
                return

    def follow_all(self) -> Generator[Json, None, None]:
        """The entries of all runs from now on, each with its run, through restarts of the agent."""
        yield from filter(None, self._followed("/v1/events", 0, "position"))

    def _followed(self, path: str, after: int, number: str) -> Iterator[Json | None]:
        """Events without end; None where the agent ended the stream."""
        absence = _Absence()
        while True:
            try:
                for event in self._events(path, after):
                    absence.over()
                    after = event[number]
                    yield event
                yield None
                absence.bear(NotDone("the agent ended the stream", Exit.TRY_AGAIN))
            except NotDone as error:
                absence.bear(error)

    def _events(self, path: str, after: int) -> Iterator[Json]:
        stream = self._http.events(path, after)
        try:
            while (event := self._done(_next(stream))) is not None:
                yield event
        finally:
            self._done(stream.aclose())

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        with _told():
            return self._runner.run(work)


async def _next(events: AsyncGenerator[Json, None]) -> Json | None:
    return await anext(events, None)


@contextmanager
def _told() -> Iterator[None]:
    """Raises NotDone for errors of the client."""
    try:
        yield
    except AgenticError as error:
        facts = {"code": error.code, "run_id": error.run_id, "field": error.field}
        message = f"{error} (give it with --token or AGENTIC_TOKEN)" if error.status in (401, 403) else str(error)
        raise NotDone(message, _exit_of(error), {k: v for k, v in facts.items() if v}) from error


def _exit_of(error: AgenticError) -> Exit:
    if (isinstance(error, Unreachable) and not error.status) or (isinstance(error, Broken) and not error.code):
        return Exit.UNREACHABLE
    return _EXITS.get(error.status, Exit.REFUSED if error.status else Exit.USAGE)


@contextmanager
def unless_away() -> Iterator[None]:
    """Calls inside are skipped while the agent is away."""
    try:
        yield
    except NotDone as error:
        if error.exit_code not in PASSING:
            raise


def run_path(run_id: str, *parts: str) -> str:
    """The path of a run, or of something of it, in the API. Raises NotDone for what would lead to another one."""
    if ".." in "/".join(parts).split("/"):
        raise NotDone(f"{parts[-1]} is no file of a run: name one that `agentic cat RUN` lists", Exit.NOT_FOUND)
    return "/".join(("/v1/runs", quote(run_id, safe=""), *map(quote, parts)))


class _Absence:
    """How long the agent has been away, which is told once; `bear` waits a little, and raises what it is given when it
    was too long."""

    _since: float | None = None

    def bear(self, error: NotDone) -> None:
        if error.exit_code not in PASSING:
            raise error
        now = time.monotonic()
        if self._since is None:
            self._since = now
            output.complain(f"waiting for the agent: {visible(str(error))}")
        elif now - self._since > AWAY_AT_MOST_S:
            raise error
        time.sleep(LOOK_AGAIN_S)

    def over(self) -> None:
        if self._since is not None:
            self._since = None
            output.complain("the agent is back")


_EXITS = {
    404: Exit.NOT_FOUND,
    410: Exit.NOT_FOUND,
    429: Exit.TRY_AGAIN,
    502: Exit.TRY_AGAIN,
    503: Exit.TRY_AGAIN,
    504: Exit.TRY_AGAIN,
}
