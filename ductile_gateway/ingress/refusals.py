"""Why a request from outside is not taken: the HTTP status that says so, and a text that repeats nothing of it."""


class RequestRefused(Exception):
    """The request can never be taken as it is. `why` is for our log, where it says more than its sender is told."""

    def __init__(self, status: int, message: str, *, why: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.why = why or message
