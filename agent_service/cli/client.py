"""The HTTP API of a running agent, as the commands use it. What does not go well is a NotDone that says what to do."""

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Self
from urllib.parse import quote

import httpx2

from agent_service.cli import naming
from agent_service.cli.errors import Exit, NotDone
from agent_service.cli.naming import Candidate
from agent_service.cli.whereabouts import address_of
from groundwork.service.address import is_loopback, without_login
from schemas.bounded import LARGEST_FILE, LARGEST_JSON, Bounded, TooLong, json_of

CONNECT_WITHIN_S = 5.0
ANSWER_WITHIN_S = 20.0
SILENT_AT_MOST_S = 60.0
"""Of an event stream, which says something every few seconds."""
AWAY_AT_MOST_S = 300.0
LOOK_AGAIN_S = 0.5
EVENTS = "text/event-stream"
PLAIN = "identity"
ALLOW_HTTP = "AGENTIC_ALLOW_HTTP_NONLOOPBACK"
START_ONE = ": start one with `agentic dev`, or name another with --url"
PASSING = (Exit.UNREACHABLE, Exit.TRY_AGAIN)
"""What an agent that is away, or starts, is told by."""
FINAL = frozenset({"done", "escalated", "failed", "cancelled"})

Json = dict[str, Any]
Away = Callable[[str], None]
"""Is told why the agent does not answer, and the empty text when it does again."""


def patiently(_: str) -> None:
    """Waits for an agent that is away without a word."""


class AgentClient:
    """Calls the agent at `url`, or that of the configuration where it is empty; closed on leaving."""

    def __init__(self, url: str, token: str | None, config: Path | None = None) -> None:
        said, named = url, address_of(url, config)
        url, self._at = named.url, f"{without_login(named.url)}, {named.whence}"
        headers = {"Accept-Encoding": PLAIN} | ({"Authorization": f"Bearer {_sendable(token)}"} if token else {})
        address, timeout = _address(url), httpx2.Timeout(ANSWER_WITHIN_S, connect=CONNECT_WITHIN_S)
        if token and said:
            _refuse_if_overheard(address)
        tls = address.scheme == "https"  # without it no certificates are loaded, which takes longer than most answers
        self._http = httpx2.Client(base_url=address, headers=headers, timeout=timeout, verify=tls, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **params: str | int | Sequence[str] | None) -> Json:
        given = {name: value for name, value in params.items() if value is not None}
        return self._object(*self._answered("GET", path, params=given))

    def post(self, path: str, body: Json) -> Json:
        return self._object(*self._answered("POST", path, json=body))

    def content(self, path: str) -> bytes:
        return self._answered("GET", path, most=LARGEST_FILE)[1]

    def run(self, run_id: str) -> Json:
        return self.get(run_path(run_id))

    def timeline(self, run_id: str) -> Json:
        return self.get(run_path(run_id, "timeline"))

    def named(self, name: str) -> str:
        """The id of the run that `name` means. Raises NotDone for none, and for several."""
        if naming.is_whole(name):
            return name
        page = self.get("/v1/runs", limit=naming.LOOKED_AT, before=naming.bound(name))
        newest = [Candidate(*(str(line.get(part)) for part in ("run_id", "status", "goal"))) for line in page["runs"]]
        return naming.meant(name, newest)

    def run_in_time(self, run_id: str, away: Away) -> Json:
        absence = _Absence(away)
        while True:
            try:
                view = self.run(run_id)
            except NotDone as error:
                absence.bear(error)
            else:
                absence.over()
                return view

    def follow(self, run_id: str, after: int = 0, *, away: Away = patiently) -> Generator[Json, None, None]:
        """The run's entries after entry `after`, each once, to its end, through restarts of the agent."""
        absence, status = _Absence(away), None
        while status not in FINAL:
            try:
                for entry in self._stream(run_path(run_id, "events"), after, absence):
                    after, status = entry["seq"], entry["status"]
                    yield entry
                if status not in FINAL:
                    absence.bear(NotDone("the agent ended the stream before the run has ended", Exit.TRY_AGAIN))
            except NotDone as error:
                absence.bear(error)
            except _NothingMore:
                return

    def follow_all(self, *, away: Away = patiently) -> Generator[Json, None, None]:
        """The entries of all runs from now on, each with its run, through restarts of the agent."""
        absence, after = _Absence(away), 0
        while True:
            try:
                for event in self._stream("/v1/events", after, absence):
                    after = event["position"]
                    yield event
                absence.bear(NotDone("the agent ended the stream", Exit.TRY_AGAIN))
            except NotDone as error:
                absence.bear(error)

    def _stream(self, path: str, after: int, absence: "_Absence") -> Iterator[Json]:
        headers = {"Last-Event-ID": str(after)} if after else {}
        timeout = httpx2.Timeout(ANSWER_WITHIN_S, read=SILENT_AT_MOST_S)
        with self._sent("GET", path, headers=headers, timeout=timeout) as answer:
            if answer.status_code == httpx2.codes.NO_CONTENT:
                raise _NothingMore
            if not answer.headers.get("content-type", "").startswith(EVENTS):
                raise self._refused(answer, _content(answer, LARGEST_JSON))
            absence.over()
            held = Bounded(LARGEST_JSON)
            for piece in answer.iter_raw():
                held.add(piece)
                for line in held.lines():
                    if line.startswith(b"data:"):
                        yield self._object(answer, line.removeprefix(b"data:"))

    def _answered(
        self, method: str, path: str, *, most: int = LARGEST_JSON, **more: Any
    ) -> tuple[httpx2.Response, bytes]:
        with self._sent(method, path, **more) as answer:
            content = _content(answer, most)
        if not answer.is_success:
            raise self._refused(answer, content)
        return answer, content

    @contextmanager
    def _sent(self, method: str, path: str, **more: Any) -> Iterator[httpx2.Response]:
        try:
            with self._http.stream(method, path, **more) as answer:
                if answer.headers.get("content-encoding", PLAIN) != PLAIN:
                    raise self._no_agent(answer)
                yield answer
        except httpx2.RequestError as error:
            self._unreachable(error)
        except TooLong as error:
            message = f"what answers at {self._at} sends {error} at once, which no agent does"
            raise NotDone(message, Exit.FAILED) from error

    def _object(self, answer: httpx2.Response, content: bytes) -> Json:
        found = json_of(content)
        if not isinstance(found, dict):
            raise self._no_agent(answer)
        return found

    def _no_agent(self, answer: httpx2.Response) -> NotDone:
        message = f"what answers at {self._at} ({answer.status_code}), is no agent: name the agent's API with --url"
        return NotDone(message, Exit.UNREACHABLE)

    def _refused(self, answer: httpx2.Response, content: bytes) -> NotDone:
        error = self._object(answer, content).get("error")
        facts = {k: v for k, v in error.items() if isinstance(v, str)} if isinstance(error, dict) else {}
        message = facts.get("message", f"the agent answered {answer.status_code}")
        if answer.status_code in (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN):
            message = f"{message} (give it with --token or AGENTIC_TOKEN)"
        return NotDone(message, _EXITS.get(answer.status_code, Exit.REFUSED), facts)

    def _unreachable(self, error: Exception) -> NoReturn:
        why = str(error) or type(error).__name__
        if isinstance(error, httpx2.RemoteProtocolError):  # whose words are about chunks of bodies
            why = "the connection was closed"
        raise NotDone(f"no agent answers at {self._at} ({why}){START_ONE}", Exit.UNREACHABLE) from error


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


def _content(answer: httpx2.Response, most: int) -> bytes:
    held = Bounded(most)
    for piece in answer.iter_raw():
        held.add(piece)
    return bytes(held)


def _address(url: str) -> httpx2.URL:
    try:
        address = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise NotDone(f"{without_login(url)} is no address: write it like http://127.0.0.1:8700", Exit.USAGE) from error
    if address.scheme not in ("http", "https") or not address.host:
        raise NotDone(
            f"{without_login(url)} is no address of an agent: write it like http://127.0.0.1:8700", Exit.USAGE
        )
    return address


def _sendable(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise NotDone("the token has characters that no token has: is there a line end in it?", Exit.USAGE)
    return token


def _refuse_if_overheard(address: httpx2.URL) -> None:
    if address.scheme == "http" and not is_loopback(address.host) and os.environ.get(ALLOW_HTTP) != "true":
        why = f"the token would go over plain http to {address.host}, and whoever listens on the way could use it"
        raise NotDone(f"{why}: use https, or set {ALLOW_HTTP}=true where the way there is private", Exit.USAGE)


class _NothingMore(Exception):
    """The run has ended and all of it was seen."""


class _Absence:
    """How long the agent has been away; `bear` waits a little, and raises what it is given when it was too long."""

    def __init__(self, away: Away) -> None:
        self._away = away
        self._since: float | None = None

    def bear(self, error: NotDone) -> None:
        if error.exit_code not in PASSING:
            raise error
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > AWAY_AT_MOST_S:
            raise error
        self._away(str(error).removesuffix(START_ONE))
        time.sleep(LOOK_AGAIN_S)

    def over(self) -> None:
        if self._since is not None:
            self._since = None
            self._away("")


_EXITS = {
    404: Exit.NOT_FOUND,
    410: Exit.NOT_FOUND,
    429: Exit.TRY_AGAIN,
    502: Exit.TRY_AGAIN,
    503: Exit.TRY_AGAIN,
    504: Exit.TRY_AGAIN,
}
