"""Deaths of processes: before their n-th effect on the world, or where the seed says.

An effect is visible to others: a message, an acknowledgement, a request, a commit. A death anywhere between two
effects has the same result. Queries (JetStream's API) are no effects.
"""

import re
from collections.abc import Callable

from tests.sim.machines.time import Killed, Process

_PUBLISHED = re.compile(rb"^H?PUB (\S+)", re.MULTILINE)
_ASKED = (b"$JS.API.", b"$KV.", b"_INBOX")
_REQUEST = re.compile(rb"^(POST \S+|HTTP/1.1 \d+)")


class Kills:
    def __init__(self) -> None:
        self.names: list[str] = []
        """Effects in order, such as `agent: agent.progress`."""
        self.at: int | None = None
        """Number, from 1, of the effect before which its process dies."""
        self.drawn: Callable[[Process], bool] = lambda _: False
        self.on_kill: Callable[[Process], None] = lambda _: None

    def forget(self) -> None:
        self.names.clear()

    def sends(self, process: Process, host: str, data: bytes) -> None:
        """Raises Killed if the process dies before it sends this."""
        if not process.alive:
            raise Killed
        for what in _effects(host, data):
            self._pass_by(process, what)

    def commits(self, process: Process, database: str) -> None:
        """Raises Killed if the process dies before it commits this."""
        if not process.alive:
            raise Killed
        self._pass_by(process, f"commit to {database}")

    def _pass_by(self, process: Process, what: str) -> None:
        self.names.append(f"{process.name}: {what}")
        if len(self.names) == self.at or self.drawn(process):
            process.kill()
            self.on_kill(process)
            raise Killed


def _effects(host: str, data: bytes) -> list[str]:
    if host != "bus":
        found = _REQUEST.match(data)
        return [found.group(1).decode()] if found else []
    subjects = [subject for subject in _PUBLISHED.findall(data) if not subject.startswith(_ASKED)]
    return ["an acknowledgement" if one.startswith(b"$JS.ACK") else one.decode() for one in subjects]
