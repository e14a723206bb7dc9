"""Commands on the stored runs (verify, backup, restore, export) and on the signing keys."""

from pathlib import Path
from typing import Any

import typer

from agent_service.archive import restoring, verifying, writing
from agent_service.archive.access import Report
from agent_service.cli.client import reader_config
from agent_service.cli.options import CONFIG_NEARBY, DRY_RUN, local_command, run_name
from agent_service.cli.output import Output
from agent_service.settings import AgentSettings, load
from agent_service.trust.proofs import Signing
from groundwork.service.commands import argument, flag, option
from groundwork.service.errors import Exit, Misconfigured
from groundwork.service.keys import Key, KeyRing, read, write

commands = typer.Typer()
keys = typer.Typer(
    name="keys",
    no_args_is_help=True,
    help="They are in one file beside the store (`agent.keys_file`): back it up too, in another place than the store.",
)
commands.add_typer(keys)


def _result(report: Report) -> Output:
    return Output({"ok": report.ok, **report.facts}, report.text, Exit.OK if report.ok else Exit.FAILED)


FILE_SUFFIX = ".zip"


def _is_file(text: str | None) -> bool:
    return bool(text) and (str(text).endswith(FILE_SUFFIX) or "/" in str(text))


def _run_or_file(text: str | None) -> str | None:
    return text if _is_file(text) else run_name(text)


RUN_OR_FILE = argument(
    "The run's id, a unique part of it, or `last`; or an archive that ends in .zip.",
    "RUN|FILE",
    default=None,
    callback=_run_or_file,
)
WITH_KEYS = flag("Include the keys: then keep the file secret.", "--with-keys")


@local_command(commands, "agentic verify RUN", "agentic verify --all --against-bus", "agentic verify RUN.zip")
async def verify(
    run: str | None = RUN_OR_FILE,
    every: bool = flag("All runs of the store.", "--all"),
    against_bus: bool = flag("Compare also with what the bus was told; for all runs.", "--against-bus"),
    key: str | None = option(
        "The public key that an archive must be signed with (`agentic keys list`).", metavar="KEY"
    ),
    config: Path | None = CONFIG_NEARBY,
) -> Output:
    """It reads only, while the agent runs or not. What was changed is named. A file of exported runs is checked
    anywhere: it needs neither store nor bus."""
    every = every or against_bus
    if every == (run is not None):
        raise typer.BadParameter("name one run, or give --all")
    if key and not _is_file(run):
        raise typer.BadParameter("--key is for an archive")
    if run is not None and _is_file(run):
        return _result(verifying.verify_file(Path(run), key))
    file = reader_config(config)
    checking = verifying.verify(run, file) if run else verifying.verify_all(file, against_bus=against_bus)
    return _result(await checking)


@local_command(commands, "agentic backup /backups/it.zip", "agentic backup /backups/ --keep 30")
async def backup(
    place: str = argument("A folder, which is made if need be; or a file that ends in .zip.", "FOLDER|FILE"),
    with_keys: bool = WITH_KEYS,
    keep: int | None = option("Keep so many of the newest backups in the folder; without it all.", min=1),
    config: Path | None = CONFIG_NEARBY,
) -> Output:
    """In a folder each later backup holds only what is new. Copy the folder to another machine afterwards. Exit code 1
    if something was left out."""
    return _result(await writing.backup(reader_config(config), place, with_keys=with_keys, keep=keep))


@local_command(
    commands,
    "agentic restore /backups/ --dry-run",
    "agentic restore /backups/ --stopped",
    "agentic restore /backups/ --backup 20261123T030000Z",
    "agentic restore --artifacts",
)
async def restore(
    place: str | None = argument("The backup file, or the folder that it is in.", "FILE|FOLDER", default=None),
    backup: str | None = option("The backup of the folder; without it the newest.", metavar="NAME"),
    dry_run: bool = DRY_RUN,
    stopped: bool = flag("Leave everything stopped, until `agentic go-on`.", "--stopped"),
    moved: bool = flag("Nothing happened since the backup, as in a move: no write is in doubt.", "--moved"),
    new_keys: bool = flag("Accept it without proof, with new keys: the old ones are lost.", "--new-keys"),
    artifacts: bool = flag(
        "Without a backup: what the bucket has lost, from the runs' folders, by its hash.", "--artifacts"
    ),
    config: Path | None = CONFIG_NEARBY,
) -> Output:
    """Neither service may run, and nothing is overwritten. Make the streams first, with `agentic setup`. If it is
    interrupted, run the same command again. With --artifacts both may run, and exit code 1 says that some are lost."""
    if artifacts == (place is not None) or (artifacts and any((backup, dry_run, stopped, moved, new_keys))):
        raise typer.BadParameter("name a backup, or give --artifacts by itself")
    if not place:
        return _result(await restoring.restore_artifacts(reader_config(config)))
    how: dict[str, Any] = {"stopped": stopped, "moved": moved, "new_keys": new_keys}
    return _result(await restoring.restore(reader_config(config), place, backup=backup, dry_run=dry_run, **how))


@local_command(commands, "agentic export RUN", "agentic export last /tmp/it.zip", "agentic export --all /tmp/all.zip")
async def export(
    run: str | None = RUN_OR_FILE,
    file: Path | None = argument(
        "The file, or a folder for it; without it RUN.zip, here.", "FILE|FOLDER", default=None
    ),
    every: bool = flag("All runs, to be restored in another store: no agent starts on this one again.", "--all"),
    config: Path | None = CONFIG_NEARBY,
) -> Output:
    """While the agent runs or not; with --all none may run. Any tool opens it, and `agentic verify FILE` checks it
    anywhere. Exit code 1 if something was left out."""
    if every == (run is not None and not _is_file(run)) or (every and file):
        raise typer.BadParameter("name one run, or give --all and a file")
    settings = reader_config(config)
    if every:
        return _result(await writing.export_all(settings, Path(run or ".")))
    return _result(await writing.export(settings, run or "", file))


@local_command(keys, "agentic keys list", "agentic keys list --json", name="list")
def list_keys(config: Path | None = CONFIG_NEARBY) -> Output:
    """Show the keys, newest first: when each was made, and its public half, by which others know the agent's events."""
    return _listed(*_held(config))


@local_command(keys, "agentic keys rotate")
def rotate(dry_run: bool = DRY_RUN, config: Path | None = CONFIG_NEARBY) -> Output:
    """Make a new key, which signs from now on. The older ones still verify what they signed."""
    settings, held = _held(config)
    if dry_run:
        return _listed(settings, held, "a new key would sign from now on, and these would verify")
    made = Key.fresh()
    write(settings.keys_path(), (made, *held))
    return _listed(settings, (made, *held), f"{made.id} signs from now on; the older ones still verify")


@local_command(keys, "agentic keys retire k1f2e3d4")
def retire(
    key: str = argument("As `agentic keys list` shows it.", "ID"),
    dry_run: bool = DRY_RUN,
    config: Path | None = CONFIG_NEARBY,
) -> Output:
    """Delete an older key. Data that it signed is trusted no longer, and open requests of its time get no answer.

    Wait until every run is younger than the key after it.
    """
    settings, held = _held(config)
    left = tuple(one for one in held if one.id != key)
    if len(left) == len(held):
        place = settings.keys_path()
        raise Misconfigured(f"{place} holds no key {key[:40]}: `agentic keys list` shows those that it holds")
    if held[0].id == key:
        raise Misconfigured(f"{key} is the newest key, which signs everything: run `agentic keys rotate` first")
    if dry_run:
        return _listed(settings, left, f"{key} would be deleted, and these would stay")
    write(settings.keys_path(), left)
    return _listed(settings, left, f"{key} is deleted")


def _held(config: Path | None) -> tuple[AgentSettings, tuple[Key, ...]]:
    settings = load(reader_config(config))
    try:
        return settings, read(settings.keys_path())
    except OSError as error:
        remedy = "run this as the user of the agent, which makes them when it starts"
        raise Misconfigured(f"{settings.keys_path()} cannot be read ({error.strerror}): {remedy}") from error


def _listed(settings: AgentSettings, held: tuple[Key, ...], done: str = "") -> Output:
    path, public = settings.keys_path(), Signing(KeyRing(held), settings.store).public_keys().keys
    lines = [f"{key.id}  made {key.made_at:%Y-%m-%d %H:%M}  public {key.public}" for key in public]
    text = "\n".join(filter(None, (done, *lines, f"newest first, in {path}")))
    return Output({"file": str(path), "keys": [key.model_dump(mode="json") for key in public]}, text)
