"""Commands to try things out: the development stack, examples, the demo, and the evaluation of a model."""

import os
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import typer

from agent_service.cli import output
from agent_service.cli.options import AS_JSON, CONFIG, argument, local_command, option
from agent_service.cli.output import Output
from agent_service.models.scripted_model import read_script
from agent_service.settings import KEYS
from agent_service.workbench import evaluate
from agent_service.workbench.demo import run_demo
from agent_service.workbench.dev_command import run_dev
from agent_service.workbench.dev_settings import DEFAULT, PLUGINS, DevOptions, names_a_model
from groundwork.service.commands import examples as shown
from groundwork.service.errors import Exit, Misconfigured
from groundwork.service.program import shipped

LEFT_BY_TRIALS = (".agentic", "__pycache__")
MOST_PORT = 65535

commands = typer.Typer()


@commands.command(
    epilog=shown("agentic dev", "agentic dev --tools tools", "agentic dev --dir /tmp/try --http-port 0"),
)
def dev(
    folder: Path = option("Where everything is kept.", "--dir", default=Path(".agentic"), metavar="FOLDER"),
    http_port: int = option("Port of the HTTP API; 0 takes a free one.", default=8700, min=0, max=MOST_PORT),
    nats_port: int = option("Port of the NATS server; 0 takes a free one.", default=0, min=0, max=MOST_PORT),
    script: Path | None = option("A script for the scripted model.", exists=True, dir_okay=False, metavar="FILE"),
    tools: list[Path] | None = option(
        "A folder of further tools; changes in it count at once.",
        "--tools",
        "--plugins",
        exists=True,
        file_okay=False,
        metavar="FOLDER",
    ),
    config: Path | None = CONFIG,
    as_json: bool = AS_JSON,
) -> None:
    """Uses the settings file, except its places and addresses. If it names no model, Claude decides where
    ANTHROPIC_API_KEY is set and no script is given; otherwise a script plays the model."""
    file = config or (DEFAULT if os.path.lexists(DEFAULT) else None)
    is_open = script is None and not names_a_model(file)
    thinks = is_open and bool(os.environ.get(KEYS["anthropic"]))
    options = DevOptions(
        folder=folder,
        http_port=http_port,
        nats_port=nats_port,
        script=script,
        plugins=(*(path.absolute() for path in tools or ()), PLUGINS),
        agent={"model": {"provider": "anthropic"}} if thinks else {},
        file=file,
        story=is_open and not thinks and file is None,
    )
    raise typer.Exit(output.run_async(run_dev(options, as_json=as_json)))


@local_command(commands, "agentic example", "agentic example home-automation")
def example(
    name: str | None = argument("The example; without it all are listed.", "NAME", default=None),
    into: Path = option("The folder for the copy.", "--dir", default=Path(), metavar="FOLDER", file_okay=False),
) -> Output:
    pages = sorted(shipped("examples").glob("*/README.md"))
    titles = {page.parent.name: page.read_text("utf-8").partition("\n")[0].removeprefix("# ") for page in pages}
    if name is None:
        lines = "\n".join(f"{one:18}  {title}" for one, title in titles.items())
        return Output([{"name": one, "title": title} for one, title in titles.items()], lines)
    if name not in titles:
        raise typer.BadParameter(f"there is no example {name}: there are {', '.join(titles)}")
    made = into / name
    try:
        shutil.copytree(shipped("examples", name), made, ignore=shutil.ignore_patterns(*LEFT_BY_TRIALS))
    except FileExistsError as error:
        raise Misconfigured(f"{made} is there already, and nothing was changed: copy it to another folder") from error
    except OSError as error:
        raise Misconfigured(f"{made} cannot be written: {error}") from error
    lines = f"{made} is made. Its page says what to do: {made / 'README.md'}\n\n  cd {made} && agentic dev"
    return Output({"folder": str(made)}, lines)


@commands.command(epilog=shown("agentic demo"))
def demo(
    folder: Path = option("Where everything is kept.", "--dir", default=Path(".demo"), metavar="FOLDER"),
    as_json: bool = AS_JSON,
) -> None:
    raise typer.Exit(output.run_async(run_demo(folder, as_json=as_json)))


@local_command(
    commands,
    "agentic eval",
    "agentic eval --config agentic.yaml --scenario 'injection-*'",
    "agentic eval --config claude.yaml --config local.yaml --repeat 5",
    "agentic eval --config claude.yaml --repeat 5 --against before.json",
    name="eval",
)
def evaluation(
    scenario: list[str] | None = option("Only these: a name, or a pattern like 'injection-*'.", metavar="NAME"),
    folder: list[Path] | None = option("A folder with scenarios of your own, besides.", metavar="FOLDER"),
    config: list[Path] | None = option(
        "The configuration file; several are compared. Without it: ./agentic.yaml, if there is one.", metavar="FILE"
    ),
    repeat: int = option("How often each scenario is played.", default=1, min=1, metavar="TIMES"),
    against: Path | None = option("Compare with what an earlier call printed with --json.", metavar="FILE"),
    jobs: int = option("Scenarios at a time.", default=4, min=1),
    trail: Path | None = option("Write the paper trail of every run there.", metavar="FOLDER"),
) -> Coroutine[Any, Any, Output]:
    """With a real model this costs money. Bus, tools, people and time are played."""
    return evaluate.run(
        scenario or (), folder or (), config or (), repeat=repeat, jobs=jobs, against=against, trail=trail
    )


script = typer.Typer(name="script", no_args_is_help=True)
commands.add_typer(script)


@local_command(script, "agentic script check script.yaml", "agentic script check scripts/*.yaml")
def check(files: list[Path] = argument("Scripts.", "FILE", exists=True, dir_okay=False)) -> Output:
    """Check scripts for errors and open ends. Exit code 78 where something is wrong."""
    told, lines = [], []
    for file in files:
        try:
            read, flaws = read_script(file), list[str]()
            lines.append(f"✓ {file}: {read.name}, {len(read.rules)} rules")
        except Misconfigured as error:
            read, flaws = None, str(error).removeprefix(f"script {file}").lstrip(": ").split("; ")
        advice = list(read.advice()) if read else []
        lines += [*(f"✗ {file}: {flaw}" for flaw in flaws), *(f"! {file}: {one}" for one in advice)]
        told.append({"file": str(file), "flaws": flaws, "advice": advice})
    return Output(told, "\n".join(lines), Exit.MISCONFIGURED if any(one["flaws"] for one in told) else Exit.OK)
