"""How the tests of the fake speak to a Ductile: calls, jobs waited for, signed events."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx2

from tests.ductile.under_test import DuctileUnderTest, Peer

Found = TypeVar("Found")
PATIENCE_SECONDS = 20
UNFINISHED = ("queued", "running")


def client(ductile: DuctileUnderTest, token: str = "gateway") -> httpx2.Client:  # noqa: S107 - the name of a token
    """A client with one of the tokens."""
    headers = {"Authorization": f"Bearer {ductile.tokens[token]}"}
    return httpx2.Client(base_url=ductile.url, headers=headers, trust_env=False, timeout=PATIENCE_SECONDS)


def called(ductile: DuctileUnderTest, command: str = "note", **payload: Any) -> str:
    """The id of the job of a call of the probe."""
    with client(ductile) as http:
        answer = http.post(f"/plugin/probe/{command}", json={"payload": payload})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


def finished(ductile: DuctileUnderTest, job_id: str) -> dict[str, Any]:
    """The job once it is terminal; only `status` where its result cannot be read."""
    with client(ductile) as http:

        def found() -> dict[str, Any]:
            answer = http.get(f"/job/{job_id}")
            assert answer.status_code == 200
            return dict(answer.json()) if answer.content else {"status": "unreadable"}

        return awaited(found, lambda job: job["status"] not in UNFINISHED)


def logged(ductile: DuctileUnderTest, **query: str) -> list[dict[str, Any]]:
    """The lines of /job-logs that match."""
    with client(ductile) as http:
        return list(http.get("/job-logs", params=query).json()["logs"])


def attempts(ductile: DuctileUnderTest, job_id: str) -> list[int]:
    """The attempts of a job that ran, in their order."""
    return [one.attempt for one in ductile.executions if one.job_id == job_id]


def awaited(look: Callable[[], Found], holds: Callable[[Found], bool]) -> Found:
    """What is seen once it holds. Fails with the last that was seen."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not holds(found := look()):
        assert time.monotonic() < until, found
        time.sleep(0.01)
    return found


def envelope(kind: str = "probe.asked", /, *, key: str | None = None, **payload: Any) -> dict[str, Any]:
    """An event for the relay ingress."""
    return {"event": {"type": kind, "payload": payload} | ({"dedupe_key": key} if key else {})}


def signed(peer: Peer, body: bytes, *, at: str | None = None) -> dict[str, str]:
    """The headers of a relayed event."""
    timestamp = at or datetime.now(UTC).isoformat().replace("+00:00", "Z")
    base = b"\n".join([b"POST", peer.path.encode(), timestamp.encode(), body])
    return {
        "X-Ductile-Peer": peer.name,
        "X-Ductile-Key-Id": peer.key_id,
        "X-Ductile-Timestamp": timestamp,
        "X-Ductile-Signature": hmac.new(peer.secret.encode(), base, hashlib.sha256).hexdigest(),
    }


def relayed(
    ductile: DuctileUnderTest, event: Mapping[str, Any] | bytes, *, at: str | None = None, **changed: str | None
) -> httpx2.Response:
    """The answer to a signed event; `changed` replaces headers by their last word, or leaves them out with None."""
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    headers: dict[str, str | None] = {**signed(ductile.peer, body, at=at)}
    headers |= {f"X-Ductile-{name.replace('_', '-').title()}": value for name, value in changed.items()}
    kept = {name: value for name, value in headers.items() if value is not None}
    return httpx2.post(ductile.url + ductile.peer.path, content=body, headers=kept, trust_env=False)
