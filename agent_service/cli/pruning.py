"""The command that has runs go whose time is over: by the agent that runs, else on its store."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_service.cli import output
from agent_service.cli.client import AgentClient, Json
from agent_service.cli.complaints import NotDone
from agent_service.cli.exits import Exit
from agent_service.cli.options import URL, AsJson, ConfigNearby, Token, Url
from agent_service.cli.prune_store import prune as on_the_store
from agent_service.cli.working import awaited, log_only_what_is_not_said
from groundwork.service.commands import examples

SHOWN = 20
NO_RULES = "no run goes: agent.keep_runs has no rule, so all are kept for ever (docs/OPERATIONS.md#keep)"

commands = typer.Typer()


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
    log_only_what_is_not_said()
    try:
        pruned = _by_the_agent(url, token, config, dry_run=dry_run)
    except NotDone as error:
        if error.exit_code is not Exit.UNREACHABLE:
            raise
        pruned = _on_the_store(config, dry_run=dry_run)
    output.tell(pruned, _in_words(pruned), as_json=as_json)


def _on_the_store(config: Path | None, *, dry_run: bool) -> Json:
    pruned: Json = awaited(on_the_store(config, dry_run=dry_run)).model_dump(mode="json")
    return pruned


def _by_the_agent(url: str, token: str | None, config: Path | None, *, dry_run: bool) -> Json:
    with AgentClient(url, token, config) as agent:
        answers = [agent.post("/v1/prune", {"dry_run": dry_run})]
        while answers[-1]["more"]:
            answers.append(agent.post("/v1/prune", {}))
    sums: dict[str, Any] = {
        name: dict(sum((Counter(answer[name]) for answer in answers), Counter())) for name in ("runs", "artifacts")
    }
    listed = [run for answer in answers for run in answer["listed"]]
    return {**answers[-1], **sums, "listed": listed}


def _in_words(pruned: Json) -> str:
    would = "would go" if pruned["dry_run"] else "went"
    return "\n".join([*_of_runs(pruned, would), *_beside(pruned, would)])


def _of_runs(pruned: Json, would: str) -> list[str]:
    if not pruned["rules"]:
        return [NO_RULES]
    lines = [f"{count:>8} runs {would} by {rule}" for rule, count in pruned["runs"].items()]
    lines += [f"{count:>8} runs whose artifacts {would} by {rule}" for rule, count in pruned["artifacts"].items()]
    lines += [f"  {run['run_id']}  {run['status']:<9}  {run['ended_at'][:19]}Z" for run in pruned["listed"][:SHOWN]]
    if (more := sum(pruned["runs"].values()) + sum(pruned["artifacts"].values()) - SHOWN) > 0:
        lines.append(f"  and {more} more")
    if pruned["trouble"]:
        lines.append(f"! {pruned['trouble']}; the next pass does it")
    return lines or [f"no run {'would go' if pruned['dry_run'] else 'had to go'}"]


def _beside(pruned: Json, would: str) -> list[str]:
    letters = [f"{count:>8} dead letters {would} by {rule}" for rule, count in pruned.get("dead_letters", {}).items()]
    of_the_gateway = [
        f"{count:>8} {kind} of the gateway {would}" for kind, count in pruned.get("gateway", {}).items() if count
    ]
    not_reached = [f"! {pruned['not_reached']}"] if pruned.get("not_reached") else []
    return [*letters, *of_the_gateway, *not_reached]
