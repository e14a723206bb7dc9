"""How calls of one plugin are run: handed to the process that starts guards, as JSON."""

import json
from typing import NamedTuple

from ductile_gateway.plugins.box.limits import Limits

OWN = ("work", "tmp")
"""Folders in the place of a guard, empty when a call begins: where it is, and TMPDIR."""
MARK = "AGENTIC_CALL"
"""The variable by which the processes of a call are known if their guard was killed: 40 characters."""


class User(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Order(NamedTuple):
    """Paths are absolute. `place`: where one guard lets its calls write, with the folders of `OWN`. `python`: the
    entrypoint is a program of this Python. `landlock`: files end at `read` and `write`. `view`: `closed` is hidden, and
    only `write` without `frozen` can be changed."""

    entrypoint: str
    environment: dict[str, str]
    place: str = ""
    python: bool = False
    limits: Limits = Limits()
    landlock: bool = False
    view: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    user: User | None = None

    @property
    def own(self) -> tuple[str, ...]:
        return tuple(f"{self.place}/{name}" for name in OWN)

    def to_json(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @classmethod
    def of_json(cls, content: bytes) -> "Order":
        """Its tuples are lists by then."""
        raw = json.loads(content)
        return cls(**raw | {"limits": Limits(*raw["limits"]), "user": User(*raw["user"]) if raw["user"] else None})
