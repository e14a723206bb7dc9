"""Errors of the gateway, named by what to do about them: those of both services."""

from groundwork.service.errors import Broken, Fatal, GiveUp, Misconfigured, NoRoom, TryAgain, Unreachable

__all__ = ["Broken", "Fatal", "GiveUp", "Misconfigured", "NoRoom", "TryAgain", "Unreachable"]
