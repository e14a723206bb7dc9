"""What the fake and a real Ductile have in common, so that one suite can be run against both.

Rule: a test that takes a DuctileUnderTest drives it through HTTP and the probe plugin alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx2

from tests.kit.waiting import wait_until

PROBE = Path(__file__).parent / "probe"
"""The plugin that every Ductile under test has. Its commands `handle` and `note` write, `look` reads; all three do what
`do` of their payload says: answer (default), refuse, stumble, quit, garbage, silence, flood, hang, say, hold."""

TOKENS: Mapping[str, tuple[str, ...]] = {
    "gateway": ("plugin:rw", "jobs:ro", "events:ro"),
    "reader": ("plugin:ro", "jobs:ro"),
    "caller": ("plugin:rw",),
    "nobody": (),
    "operator": ("plugin:rw", "jobs:ro", "events:ro", "system:ro"),
    "everything": ("*",),
}
"""The tokens that every Ductile under test has, by name, with their scopes."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One spawn of one plugin command.

    payload: what the caller sent (of `handle`: the payload of the event).
    attempt: 1 for the first time that this job ran.
    """

    plugin: str
    command: str
    payload: Mapping[str, Any]
    job_id: str
    attempt: int


AGENT_EVENTS = ("agent.completed", "agent.escalated", "agent.failed", "agent.waiting", "agentic.tool_result")
"""Types that the peer may send too. A pipeline listens to the first of them, whose one step is the probe's `handle`."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A sender that the relay ingress accepts: POST `path`, signed with `secret`."""

    name: str = "agent-gateway"
    key_id: str = "v1"
    secret: str = "a-relay-secret-for-tests"  # noqa: S105 - of a server that lives for one test
    path: str = "/ingest/peer/agent-gateway"
    accepts: tuple[str, ...] = ("probe.asked", "probe.unheard", *AGENT_EVENTS)


class DuctileUnderTest(Protocol):
    """A running Ductile with the probe plugin and one relay peer.

    The peer may send `probe.asked`, which starts a pipeline whose one step is the probe's `handle`, and
    `probe.unheard`, which nothing listens to. `token` is the one named `gateway`.
    """

    url: str
    token: str
    tokens: Mapping[str, str]
    peer: Peer

    @property
    def executions(self) -> Sequence[Execution]:
        """What ran so far, in the order in which it began (of a real Ductile: of the probe plugin alone)."""

    def kill(self) -> None:
        """End it as a crash does. Connections are refused from here on."""

    def start(self) -> None:
        """Start it again after `kill`, at the same address and with the same jobs. Returns once it is healthy."""


def client(ductile: DuctileUnderTest, token: str = "gateway") -> httpx2.Client:  # noqa: S107 - the name of a token
    headers = {"Authorization": f"Bearer {ductile.tokens[token]}"}
    return httpx2.Client(base_url=ductile.url, headers=headers, trust_env=False, timeout=20)


def finished(ductile: DuctileUnderTest, job_id: str) -> dict[str, Any]:
    """The job once it is terminal; only `status` where its result cannot be read."""
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
