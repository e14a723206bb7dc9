"""What is run for one call, and how: handed to the process that starts guards, as JSON."""

import json
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
    """One start of one call. All paths are absolute.

    `folder`: the call's own. `place`: where the plugin may write, with the folders `work` and `tmp`. `seconds`: until
    it is told to end. `landlock`: whether files end at `read` and `write`. `view`: whether what is
    `closed` is not there, and nothing can be changed but what is in `write` and not `frozen`.
    """

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
        """Raises ValueError, TypeError or KeyError for anything else than what `to_json` writes."""
        raw: dict[str, Any] = json.loads(content)
        texts = {name: tuple(raw[name]) for name in ("read", "write", "frozen", "closed")}
        user = User(**raw["user"] | {"groups": tuple(raw["user"]["groups"])}) if raw["user"] else None
        return cls(**raw | texts | {"limits": Limits(**raw["limits"]), "user": user})
