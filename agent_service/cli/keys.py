"""The commands on the agent's keys: `agentic keys`. A running agent takes a change up within a second."""

from pathlib import Path

import typer

from agent_service.cli import whereabouts
from agent_service.cli.options import CONFIG_NEARBY, argument, of_files
from agent_service.cli.output import Outcome
from agent_service.settings import AgentSettings, load
from agent_service.trust.signing import Signing
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import Key, KeyRing, read, write

commands = typer.Typer(no_args_is_help=True)


@commands.callback()
def about() -> None:
    """They are in one file beside the store (`agent.keys_file`): back it up with the store, and apart from it."""


@of_files(commands, "agentic keys list", "agentic keys list --json", name="list")
def list_(config: Path | None = CONFIG_NEARBY) -> Outcome:
    """Show the keys, newest first: when each was made, and its public half, by which others know the agent's events."""
    return listed(config)


@of_files(commands, "agentic keys rotate")
def rotate(config: Path | None = CONFIG_NEARBY) -> Outcome:
    """Make a newer key. The older ones go on checking what was made with them."""
    settings, keys = _held(config)
    made = Key.fresh()
    write(settings.keys_path(), (made, *keys))
    return listed(config, f"{made.id} makes from now on; the older ones go on checking")


@of_files(commands, "agentic keys retire k1f2e3d4")
def retire(
    key: str = argument("As `agentic keys list` shows it.", "ID"), config: Path | None = CONFIG_NEARBY
) -> Outcome:
    """Give an older key up: what was made with it is believed no longer, and requests that are out are not answered.

    Wait until no run is older than the key after it.
    """
    settings, keys = _held(config)
    if key not in [one.id for one in keys]:
        place = settings.keys_path()
        raise Misconfigured(f"{place} holds no key {key[:40]}: `agentic keys list` shows those that it holds")
    if keys[0].id == key:
        raise Misconfigured(f"{key} is the newest key, with which all is made: run `agentic keys rotate` first")
    write(settings.keys_path(), tuple(one for one in keys if one.id != key))
    return listed(config, f"{key} is given up")


def listed(config: Path | None, done: str = "") -> Outcome:
    """`done`: what was changed before. Raises Misconfigured where there are none."""
    settings, _ = _held(config)
    path = settings.keys_path()
    keys = Signing(KeyRing.open(path), settings.store).public_keys().keys
    lines = [f"{key.id}  made {key.made_at:%Y-%m-%d %H:%M}  public {key.public}" for key in keys]
    text = "\n".join(filter(None, (done, *lines, f"newest first, in {path}")))
    return Outcome({"file": str(path), "keys": [key.model_dump(mode="json") for key in keys]}, text)


def _held(config: Path | None) -> tuple[AgentSettings, tuple[Key, ...]]:
    settings = load(whereabouts.nearby(config))
    try:
        return settings, read(settings.keys_path())
    except OSError as error:
        reason = f"{error.strerror}; the agent makes them when it starts"
        raise Misconfigured(f"the keys in {settings.keys_path()} cannot be read: {reason}") from error
