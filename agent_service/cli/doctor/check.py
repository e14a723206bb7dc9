"""The outcome of one check."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`wrong`: the agent cannot work like this. `warning`: it can, but look at it. Where all is well, no `remedy`."""

    name: str
    mark: Literal["ok", "warning", "wrong"]
    text: str
    remedy: str = ""


def ok(name: str, text: str) -> Check:
    return Check(name=name, mark="ok", text=text)


def warning(name: str, text: str, *, remedy: str) -> Check:
    return Check(name=name, mark="warning", text=text, remedy=remedy)


def wrong(name: str, text: str, *, remedy: str) -> Check:
    return Check(name=name, mark="wrong", text=text, remedy=remedy)
