"""The commands on the agent's keys: `agentic keys`. A running agent takes a change up within a second."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_service.cli import output, whereabouts
from agent_service.cli.archive.records import Outcome, tell
from agent_service.cli.options import AsJson, ConfigNearby
from agent_service.settings import load
from agent_service.trust.signing import Signing
from groundwork.service.commands import examples
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import Key, KeyRing, read, write
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
    settings = load(whereabouts.nearby(config))
    path = settings.keys_path()
    _held(path)
    signing = Signing(KeyRing.open(path), settings.store)
    return Listed(path, signing.public_keys().keys, done)


def rotated(config: Path | None) -> Listed:
    path = load(whereabouts.nearby(config)).keys_path()
    made = Key.fresh()
    write(path, (made, *_held(path)))
    return listed(config, f"{made.id} makes from now on; the older ones go on checking")


def retired(config: Path | None, key_id: str) -> Listed:
    path = load(whereabouts.nearby(config)).keys_path()
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


commands = typer.Typer()

KeyId = Annotated[str, typer.Argument(help="As `agentic keys list` shows it.", metavar="ID")]


@commands.callback(invoke_without_command=True)
def about(context: typer.Context) -> None:
    """They are in one file beside the store (`agent.keys_file`): back it up with the store, and apart from it."""
    if context.invoked_subcommand is None:
        output.draw(context.get_help())


@commands.command(name="list", epilog=examples("agentic keys list", "agentic keys list --json"))
def list_(config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Show the keys, newest first: when each was made, and its public half, by which others know the agent's events."""
    tell(listed(config), as_json=as_json)


@commands.command(epilog=examples("agentic keys rotate"))
def rotate(config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Make a newer key. The older ones go on checking what was made with them."""
    tell(rotated(config), as_json=as_json)


@commands.command(epilog=examples("agentic keys retire k1f2e3d4"))
def retire(key: KeyId, config: ConfigNearby = None, as_json: AsJson = False) -> None:
    """Give an older key up: what was made with it is believed no longer, and requests that are out are not answered.

    Wait until no run is older than the key after it.
    """
    tell(retired(config, key), as_json=as_json)
