"""The commands on the agent's records: verify, backup, restore, export, prune."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_service.cli import output
from agent_service.cli.archive import restoring, verifying, writing
from agent_service.cli.archive.pruning import prune as on_the_store
from agent_service.cli.client import AgentClient, Json
from agent_service.cli.options import URL, AsJson, ConfigNearby, Token, Url, named
from groundwork.service.commands import examples
from groundwork.service.exits import Exit, NotDone

commands = typer.Typer()

FILE_SUFFIX = ".zip"


def _is_file(text: str | None) -> bool:
    return bool(text) and (str(text).endswith(FILE_SUFFIX) or "/" in str(text))


def _run_or_file(text: str | None) -> str | None:
    return text if _is_file(text) else named(text)


RunOrFile = Annotated[
    str | None,
    typer.Argument(
        help="The run's id, a part that no other has, or `last`; or an archive: a file that ends in .zip.",
        callback=_run_or_file,
        metavar="RUN|FILE",
    ),
]


@commands.command(
    epilog=examples("agentic verify RUN", "agentic verify --all --against-bus", "agentic verify RUN.zip"),
)
def verify(
    run: RunOrFile = None,
    every: Annotated[bool, typer.Option("--all", help="All runs of the store.")] = False,
    against_bus: Annotated[
        bool, typer.Option("--against-bus", help="Compare also with what the bus was told; for all runs.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            help="Of a file: the public key that it must be signed with (`agentic keys list`).", metavar="KEY"
        ),
    ] = None,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """It reads only, while the agent runs or not. What was changed is named. A file of exported runs is checked
    anywhere: it needs neither store nor bus."""
    every = every or against_bus
    if every == (run is not None):
        raise typer.BadParameter("name one run, or give --all")
    if run is not None and _is_file(run):
        output.end(verifying.verify_file(Path(run), key), as_json=as_json)
    looking = verifying.verify(run, config) if run else verifying.verify_all(config, against_bus=against_bus)
    output.end(output.awaited(looking), as_json=as_json)


Place = Annotated[str, typer.Argument(help="The backup file, or a folder for it.", metavar="FILE|FOLDER")]


@commands.command(
    epilog=examples("agentic backup /backups/it.zip", "agentic backup /backups/ --keep 30"),
)
def backup(
    place: Place,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Also the files with the keys, which nobody else may have.")
    ] = False,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Keep so many backups in the folder, the newest; without it all.")
    ] = None,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """In a folder each later backup holds only what is new. Copy the folder to another machine afterwards. Exit code 1
    where something was left out."""
    output.end(output.awaited(writing.backup(config, place, with_keys=with_keys, keep=keep)), as_json=as_json)


@commands.command(
    epilog=examples(
        "agentic restore /backups/",
        "agentic restore /backups/ --stopped",
        "agentic restore /backups/ --backup 20261123T030000Z",
        "agentic restore --artifacts",
    ),
)
def restore(
    place: Annotated[
        str | None, typer.Argument(help="The backup file, or the folder that it is in.", metavar="FILE|FOLDER")
    ] = None,
    backup: Annotated[
        str | None, typer.Option(help="Which backup of the folder; the newest without it.", metavar="NAME")
    ] = None,
    stopped: Annotated[
        bool, typer.Option("--stopped", help="Leave everything stopped, until `agentic go-on`.")
    ] = False,
    moved: Annotated[
        bool,
        typer.Option("--moved", help="Nothing was done since the backup, as in a move: no write is in doubt for it."),
    ] = False,
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="Take it unproved, with new keys: the old ones are lost.")
    ] = False,
    artifacts: Annotated[
        bool,
        typer.Option(
            "--artifacts", help="Without a backup: what the bucket has lost, from the runs' folders, by its hash."
        ),
    ] = False,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """Neither service may run, and nothing is overwritten. Make the streams first, with `agentic setup`. Interrupted,
    it is finished by the same command. With --artifacts both may run, and exit code 1 says that some are lost."""
    if artifacts == (place is not None):
        raise typer.BadParameter("name a backup, or give --artifacts by itself")
    how: dict[str, Any] = {"backup": backup, "stopped": stopped, "moved": moved, "new_keys": new_keys}
    work = restoring.restore(config, place, **how) if place else restoring.bring_back(config)
    output.end(output.awaited(work), as_json=as_json)


@commands.command(
    epilog=examples("agentic export RUN", "agentic export last /tmp/it.zip", "agentic export --all /tmp/all.zip"),
)
def export(
    run: RunOrFile = None,
    file: Annotated[
        Path | None,
        typer.Argument(help="The file, or a folder for it; without it RUN.zip, here.", metavar="FILE|FOLDER"),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All runs, to be restored in another store: no agent begins on this one.")
    ] = False,
    config: ConfigNearby = None,
    as_json: AsJson = False,
) -> None:
    """While the agent runs or not; with --all none may run. Any tool opens it, and `agentic verify FILE` checks it
    anywhere. Exit code 1 where something was left out."""
    if every == (run is not None and not _is_file(run)) or (every and file):
        raise typer.BadParameter("name one run, or give --all and a file")
    work = writing.export(config, run, file) if run and not every else writing.export_all(config, Path(run or "."))
    output.end(output.awaited(work), as_json=as_json)


SHOWN = 20
NO_RULES = "no run goes: agent.keep_runs has no rule, so all are kept for ever (docs/OPERATIONS.md#keep)"


@commands.command(epilog=examples("agentic prune --dry-run", "agentic prune"))
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    config: ConfigNearby = None,
    as_json: AsJson = False,
    url: Url = URL,
    token: Token = None,
) -> None:
    """An agent that runs is asked; where none answers it is done on the store of the configuration. Nothing of an open
    run goes, nor of one that an open run needs. What went says so: its paths answer 410, and its wake id stays
    taken."""
    try:
        with AgentClient(url, token, config) as agent:
            pruned = _by_the_agent(agent, dry_run=dry_run)
    except NotDone as error:
        if error.exit_code is not Exit.UNREACHABLE:
            raise
        pruned = output.awaited(on_the_store(config, dry_run=dry_run)).model_dump(mode="json")
    output.tell(pruned, "\n".join(_in_words(pruned)), as_json=as_json)


def _by_the_agent(agent: AgentClient, *, dry_run: bool) -> Json:
    answers = [agent.post("/v1/prune", {"dry_run": dry_run})]
    while answers[-1]["more"]:
        answers.append(agent.post("/v1/prune", {}))
    sums: dict[str, Any] = {
        name: dict(sum((Counter(answer[name]) for answer in answers), Counter())) for name in ("runs", "artifacts")
    }
    return {**answers[-1], **sums, "listed": [run for answer in answers for run in answer["listed"]]}


def _in_words(pruned: Json) -> Iterator[str]:
    would = "would go" if pruned["dry_run"] else "went"
    if not pruned["rules"]:
        yield NO_RULES
    for what, counts in (("runs", pruned["runs"]), ("runs whose artifacts", pruned["artifacts"])):
        yield from (f"{count:>8} {what} {would} by {rule}" for rule, count in counts.items())
    yield from (f"  {run['run_id']}  {run['status']:<9}  {run['ended_at'][:19]}Z" for run in pruned["listed"][:SHOWN])
    total = sum(pruned["runs"].values()) + sum(pruned["artifacts"].values())
    if total > SHOWN:
        yield f"  and {total - SHOWN} more"
    elif pruned["rules"] and not total:
        yield f"no run {'would go' if pruned['dry_run'] else 'had to go'}"
    if pruned["trouble"]:
        yield f"! {pruned['trouble']}; the next pass does it"
    yield from (f"{count:>8} dead letters {would} by {rule}" for rule, count in pruned["dead_letters"].items())
    yield from (f"{count:>8} {kind} of the gateway {would}" for kind, count in pruned["gateway"].items() if count)
    if pruned["not_reached"]:
        yield f"! {pruned['not_reached']}"
