"""`agentic example` copies examples; `agentic script` checks scripts for the scripted model."""

import shlex
import shutil
from pathlib import Path

import typer

from agent_service.cli.options import local_command
from agent_service.cli.output import Output
from agent_service.models.scripted_model import read_script
from groundwork.service.commands import argument, option
from groundwork.service.errors import Exit, Misconfigured
from groundwork.service.program import shipped
from schemas.status import counted

NOT_COPIED = (".agentic", "__pycache__")

commands = typer.Typer()


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
        shutil.copytree(shipped("examples", name), made, ignore=shutil.ignore_patterns(*NOT_COPIED))
    except OSError as error:
        raise Misconfigured(f"{made} cannot be made ({error}): name another folder with --dir") from error
    begin = f"cd {shlex.quote(str(made))} && agentic dev"
    lines = f"{made} is made. Its page says what to do: {made / 'README.md'}\n\n  {begin}"
    return Output({"folder": str(made)}, lines)


script = typer.Typer(name="script", no_args_is_help=True)
commands.add_typer(script)


@local_command(script, "agentic script check script.yaml", "agentic script check scripts/*.yaml")
def check(files: list[Path] = argument("Scripts.", "FILE", exists=True, dir_okay=False)) -> Output:
    """Check scripts for errors and open ends. Exit code 78 where something is wrong."""
    reports, lines = [], []
    for file in files:
        try:
            read, flaws = read_script(file), list[str]()
            lines.append(f"✓ {file}: {read.name}, {counted(len(read.rules), 'rules')}")
        except Misconfigured as error:
            read, flaws = None, str(error).removeprefix(f"script {file}").lstrip(": ").split("; ")
        advice = list(read.advice()) if read else []
        lines += [*(f"✗ {file}: {flaw}" for flaw in flaws), *(f"! {file}: {one}" for one in advice)]
        reports.append({"file": str(file), "flaws": flaws, "advice": advice})
    return Output(reports, "\n".join(lines), Exit.MISCONFIGURED if any(one["flaws"] for one in reports) else Exit.OK)
