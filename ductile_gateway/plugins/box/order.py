"""How calls of one plugin are run: handed to the process that starts guards, as JSON."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from ductile_gateway.plugins.box.limits import Limits

OWN = ("work", "tmp")
"""Folders in the place of a guard, empty when a call begins: where it is, and TMPDIR."""
MARK = "AGENTIC_CALL"
"""The variable by which the processes of a call are known if their guard was killed: 40 characters."""


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Paths are absolute. `place`: where one guard lets its calls write, with the folders of `OWN`. `python`: the
    entrypoint is a program of this Python. `landlock`: files end at `read` and `write`. `view`: `closed` is hidden, and
    only `write` without `frozen` can be changed."""

    place: str = ""
    entrypoint: str
    environment: dict[str, str]
    python: bool = False
    limits: Limits = field(default_factory=Limits)
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
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_json(cls, content: bytes) -> "Order":
        raw: dict[str, Any] = json.loads(content)
        texts = {name: tuple(raw[name]) for name in ("read", "write", "frozen", "closed")}
        user = User(**raw["user"] | {"groups": tuple(raw["user"]["groups"])}) if raw["user"] else None
        return cls(**raw | texts | {"limits": Limits(**raw["limits"]), "user": user})
