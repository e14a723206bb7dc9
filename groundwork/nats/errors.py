"""What the bus adds to the errors of groundwork/service/errors.py, which all that touches the bus raises.

TryAgain      no answer, no connection for now: nothing is known to be lost
NoRoom        the stream or the server is at its limit and stores nothing new
Unreachable   no server answers at any of the addresses, or the connection is closed for good
Misconfigured a setting, a permission, a stream or a file has to be changed
"""

from groundwork.service.errors import GiveUp, Misconfigured


class NoSuchStream(Misconfigured):
    """No stream takes this subject: the setup creates them. One that was there may be on its way back."""


class Refused(GiveUp):
    """The bus will never take this message as it is. `code` is JetStream's error code, 0 if we refused it."""

    def __init__(self, reason: str, *, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code
