"""The interface of the fake and a real Ductile, so that one suite runs against both.

Rule: a test that takes a DuctileUnderTest drives it through HTTP and the probe plugin alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx2

from tests.kit.waiting import wait_until

PROBE = Path(__file__).parent / "probe"
"""The plugin that every Ductile under test has. Its commands `handle` and `note` write, `look` reads; `do` of the
payload chooses: answer (default), refuse, stumble, quit, garbage, silence, flood, hang, say, hold."""

TOKENS: Mapping[str, tuple[str, ...]] = {
    "gateway": ("plugin:rw", "jobs:ro", "events:ro"),
    "reader": ("plugin:ro", "jobs:ro"),
    "caller": ("plugin:rw",),
    "nobody": (),
    "operator": ("plugin:rw", "jobs:ro", "events:ro", "system:ro"),
    "everything": ("*",),
}
"""Scopes of the tokens that every Ductile under test has, by name."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One spawn of a plugin command. payload: the caller's (of `handle`: of the event). attempt: from 1, within the
    job."""

    plugin: str
    command: str
    payload: Mapping[str, Any]
    job_id: str
    attempt: int


AGENT_EVENTS = ("agent.completed", "agent.escalated", "agent.failed", "agent.waiting", "agentic.tool_result")
"""Types that the peer may send too. A pipeline with the probe's `handle` listens to the first of them."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A sender that the relay ingress accepts: POST `path`, signed with `secret`."""

    name: str = "agent-gateway"
    key_id: str = "v1"
    secret: str = "a-relay-secret-for-tests"  # noqa: S105 - of a server that lives for one test
    path: str = "/ingest/peer/agent-gateway"
    accepts: tuple[str, ...] = ("probe.asked", "probe.unheard", *AGENT_EVENTS)

    def settings(self) -> dict[str, Any]:
        """Settings of a gateway that is this sender."""
        return {"peer": self.name, "key_id": self.key_id, "secret": self.secret}


class DuctileUnderTest(Protocol):
    """A running Ductile with the probe plugin and one relay peer. `probe.asked` starts a pipeline whose only step is
    the probe's `handle`; nothing listens to `probe.unheard`. `token` is the one named `gateway`."""

    url: str
    token: str
    tokens: Mapping[str, str]
    peer: Peer

    @property
    def executions(self) -> Sequence[Execution]:
        """Executions in order (of a real Ductile: of the probe plugin alone)."""

    def kill(self) -> None:
        """Ends it as a crash does; connections are refused afterwards."""

    def start(self) -> None:
        """Starts it again after `kill`, at the same address and with the same jobs. Returns once it is healthy."""


def client(ductile: DuctileUnderTest, token: str = "gateway") -> httpx2.Client:  # noqa: S107 - the name of a token
    headers = {"Authorization": f"Bearer {ductile.tokens[token]}"}
    return httpx2.Client(base_url=ductile.url, headers=headers, trust_env=False, timeout=20)


def called(ductile: DuctileUnderTest, command: str, *, plugin: str = "probe", **payload: Any) -> str:
    """Starts a job and returns its id."""
    with client(ductile) as http:
        answer = http.post(f"/plugin/{plugin}/{command}", json={"payload": payload})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


def finished(ductile: DuctileUnderTest, job_id: str) -> dict[str, Any]:
    """The terminal job; only `status` if its result cannot be read."""
    found: dict[str, Any] = {}
    with client(ductile) as http:

        def ended() -> bool:
            answer = http.get(f"/job/{job_id}")
            assert answer.status_code == 200
            found.clear()
            found.update(answer.json() if answer.content else {"status": "unreadable"})
            return found["status"] not in ("queued", "running")

        wait_until(ended, lambda: str(found))
    return found
