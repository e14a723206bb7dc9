"""What is run for one call, and how: handed to the process that starts guards, as JSON.

One of a plugin's outputs: a pipe, kept in a file up to what is taken.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from ductile_gateway.plugins.box.limits import Limits


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One start of one call; paths are absolute. `place`: where the plugin may write, with `work` and `tmp`. `seconds`:
    until it is told to end. `landlock`: files end at `read` and `write`. `view`: `closed` is hidden, and only `write`
    without `frozen` can be changed."""

    folder: str
    place: str
    entrypoint: str
    environment: dict[str, str]
    seconds: float
    limits: Limits = field(default_factory=Limits)
    landlock: bool = False
    view: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    user: User | None = None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_json(cls, content: bytes) -> "Order":
        raw: dict[str, Any] = json.loads(content)
        texts = {name: tuple(raw[name]) for name in ("read", "write", "frozen", "closed")}
        user = User(**raw["user"] | {"groups": tuple(raw["user"]["groups"])}) if raw["user"] else None
        return cls(**raw | texts | {"limits": Limits(**raw["limits"]), "user": user})


AT_ONCE = 64 * 1024


class Stream:
    """`source` is read here, `given` is the plugin's end."""

    def __init__(self, path: str, most: int) -> None:
        self.source, self.given = os.pipe()
        os.set_blocking(self.source, False)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._left = most
        self.is_open = True
        self.is_cut = False

    def copy(self) -> None:
        while self.is_open and not self.is_cut and (content := self._read()):
            os.write(self._file, content[: self._left])
            self._left -= len(content)
            self.is_cut = self._left < 0

    def _read(self) -> bytes:
        try:
            content = os.read(self.source, AT_ONCE)
        except BlockingIOError:
            return b""
        self.is_open = bool(content)
        return content
