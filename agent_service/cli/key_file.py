"""What the commands on keys do with the file of keys."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_service.cli import configuration
from agent_service.cli.outcome import Outcome
from agent_service.settings import load
from agent_service.signing import Signing
from groundwork.service.errors import Misconfigured
from groundwork.service.key_ring import Key, KeyRing, read, write
from schemas.signing import AgentKey


@dataclass(frozen=True)
class Listed(Outcome):
    path: Path
    keys: tuple[AgentKey, ...]
    done: str = ""

    def __str__(self) -> str:
        lines = [f"{key.id}  made {key.made_at:%Y-%m-%d %H:%M}  public {key.public}" for key in self.keys]
        return "\n".join((*([self.done] if self.done else []), *lines, f"newest first, in {self.path}"))

    def for_programs(self) -> dict[str, Any]:
        return {"file": str(self.path), "keys": [key.model_dump(mode="json") for key in self.keys]}


def listed(config: Path | None, done: str = "") -> Listed:
    settings = load(configuration.nearby(config))
    path = settings.keys_path()
    _held(path)
    signing = Signing(KeyRing.open(path), settings.store)
    return Listed(path, signing.public_keys().keys, done)


def rotated(config: Path | None) -> Listed:
    path = load(configuration.nearby(config)).keys_path()
    made = Key.fresh()
    write(path, (made, *_held(path)))
    return listed(config, f"{made.id} makes from now on; the older ones go on checking")


def retired(config: Path | None, key_id: str) -> Listed:
    path = load(configuration.nearby(config)).keys_path()
    keys = _held(path)
    if key_id not in [key.id for key in keys]:
        raise Misconfigured(f"{path} holds no key {key_id[:40]}: `agentic keys list` shows those that it holds")
    if keys[0].id == key_id:
        raise Misconfigured(f"{key_id} is the newest key, with which all is made: run `agentic keys rotate` first")
    write(path, tuple(key for key in keys if key.id != key_id))
    return listed(config, f"{key_id} is given up")


def _held(path: Path) -> tuple[Key, ...]:
    try:
        return read(path)
    except OSError as error:
        reason = f"{error.strerror}; the agent makes them when it starts"
        raise Misconfigured(f"the keys in {path} cannot be read: {reason}") from error
