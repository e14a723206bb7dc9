"""What can go wrong on the bus, named by what to do about it. Each text says what happened and what to do now."""


class BusError(Exception):
    """Any of the errors below."""


class TryAgain(BusError):
    """It may work later: nothing is known to be lost. Raised by a handler, the message comes back after `delay_s`."""

    def __init__(self, reason: str, *, delay_s: float = 1.0) -> None:
        super().__init__(reason)
        self.delay_s = delay_s


class BusFull(TryAgain):
    """The stream or the server is at its limit and stores nothing new: take no new work until there is room."""


class Unreachable(BusError):
    """No server answers at any of the addresses, or the connection is closed for good: start again later."""


class Misconfigured(BusError):
    """Repeating it cannot help: a person has to change a setting, a permission, a stream or a file."""


class NoSuchStream(Misconfigured):
    """No stream takes this subject: the setup creates them. One that was there may be on its way back."""


class Refused(BusError):
    """The bus will never take this message as it is. `code` is JetStream's error code, 0 if we refused it."""

    def __init__(self, reason: str, *, code: int = 0) -> None:
        super().__init__(reason)
        self.code = code


class Poison(BusError):
    """Raised by a handler: no delivery of this message can ever succeed, so it belongs with the dead letters."""
