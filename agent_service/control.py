"""Who may cancel runs and speak to them over the bus: whoever the server lets publish there, or, where the operator
names keys (`agent.control_keys`), whoever signs with one of them.

A signature is over subject and body (`schemas.signing`), under the name of its key. One that is sent again changes
nothing: a cancel ends a run for good, and a signal is heard once by its id.
"""

from collections.abc import Mapping

from agent_service.arrival import Arrival, Unreadable
from groundwork.service.ed25519 import verifies
from schemas.headers import SIGNATURE
from schemas.signing import read_header, signed


class Control:
    """`keys`: public keys by their names; without any, nothing has to be signed."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = keys

    def signer(self, arrival: Arrival) -> str:
        """Which key a cancel or signal is signed with; empty where none has to be. Raises Unreadable."""
        if not self._keys:
            return ""
        name, signature = read_header(arrival.headers.get(SIGNATURE)) or ("", "")
        public = self._keys.get(name, "")
        if public and verifies(public, signature, signed(arrival.subject, arrival.body)):
            return f"key {name}"
        raise Unreadable(
            f"a message on {arrival.subject} is not signed with one of agent.control_keys: sign subject and body "
            f"(header {SIGNATURE}), or say it over HTTP"
        )
