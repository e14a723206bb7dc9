"""`ductile-gateway check` and `new`, for authors of tools.

`check` exits with 78 if something is wrong or a chosen tool or command is left out, with 69 while Ductile does not
answer.
"""

import asyncio
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import typer
import yaml
from pydantic import BaseModel

from ductile_gateway.calls.policy import Offers, reads_form
from ductile_gateway.cli.main import CONFIG_NEARBY, EXAMPLE, NAME, TOOLS_FOLDER, settings_for_tools, settings_of
from ductile_gateway.ductile import discovery
from ductile_gateway.ductile.settings import owner
from ductile_gateway.plugins.boxes import box_of
from ductile_gateway.plugins.folders import MANIFEST, InstalledPlugin
from ductile_gateway.plugins.manifest import PluginCommand, PluginManifest
from ductile_gateway.plugins.runner import box_findings
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import FILE, MIGRATIONS
from ductile_gateway.tools.catalog import HOUSEKEEPING
from ductile_gateway.tools.toolbox import FoundTools, find_tools
from groundwork.service.commands import argument, examples, flag, option, say
from groundwork.service.errors import Exit, TryAgain, Unreachable
from groundwork.service.program import invocation
from groundwork.sqlite.file import pending_upgrade
from schemas import subjects
from schemas.catalog import ToolCommand
from schemas.status import Finding

commands = typer.Typer()

OUTPUT_NOTES = {
    "untrusted": ", brings untrusted content",
    "": ", counts as bringing untrusted content: nothing declares its `output`",
}


WANTED_KEYS: Mapping[type[BaseModel], Mapping[str, str]] = {
    PluginManifest: {
        "description": "the model is not told what the tool is for",
        "output": "its results count as untrusted, and writes after them wait for a person: say "
        "`output: trusted`, or `output: untrusted` where they hold pages, mails or other texts from outside",
    },
    PluginCommand: {
        "description": "the model is not told what it does",
        "input_schema": "the model is not told its arguments, and none are checked",
    },
}


Language = Literal["python", "bash", "node"]
PROGRAMS: Mapping[Language, str] = {"python": "run.py", "bash": "run.sh", "node": "run.mjs"}


def check(settings: GatewaySettings) -> Exit:
    try:
        tools = asyncio.run(find_tools(settings))
        findings = asyncio.run(_runner_findings(settings, tools))
    except TryAgain as error:
        raise Unreachable(str(error)) from error
    for finding in findings:
        remedy = f" -> {finding.remedy}" if finding.remedy else ""
        say(f"{finding.name}: {finding.text}{remedy}")
    for offer in tools.catalog.tools:
        commands = ", ".join(f"{command.name} ({_kind(command)})" for command in offer.commands)
        note = OUTPUT_NOTES.get(offer.output or "", "")
        say(f"tool {offer.name}: plugin {offer.route}, {commands}, {offer.timeout_s:g} s{note}")
    for problem in (*tools.problems, *tools.lacking):
        say(f"problem: {problem}")
    roots = settings.plugins.folders if settings.runner == "plugins" else ()
    for hint in (*advice(tools.plugins, roots), *_may_ask(settings, tools)):
        say(f"advice: {hint}")
    is_usable = (tools.catalog.tools or tools.unreachable) and not _left_out(settings, tools)
    if is_usable and not any(finding.mark == "wrong" for finding in findings):
        return Exit.OK
    are_away = tools.unreachable and all(isinstance(why, TryAgain) for why in tools.unreachable.values())
    return Exit.UNREACHABLE if is_usable and are_away else Exit.MISCONFIGURED


def _kind(command: ToolCommand) -> str:
    approve = f"approve {command.approve}" if command.approve else ""
    effect = command.effect if command.tier == "write" else None
    return ", ".join(filter(None, (command.tier, effect, approve)))


def _may_ask(settings: GatewaySettings, tools: FoundTools) -> Iterator[str]:
    asking = [offer.name for offer in tools.catalog.tools if reads_form(offer)] if settings.runner == "ductile" else []
    if asking:
        yield (
            f"a text of {', '.join(asking)} may ask for more in the tool's name: Ductile does not pass on the line "
            "`continues: false` of a manifest, so say `x-continues: false` in an `output_schema` of what never asks"
        )


def _left_out(settings: GatewaySettings, tools: FoundTools) -> bool:
    if settings.runner == "plugins" and settings.choices() is None:
        return bool(tools.problems)
    offered = {offer.name: {command.name for command in offer.commands} for offer in tools.catalog.tools}
    return any(
        name not in offered or set(choice.commands or ()) - offered[name]
        for name, choice in (settings.choices() or {}).items()
        if owner(name, settings.ductiles) not in tools.unreachable
    )


async def _runner_findings(settings: GatewaySettings, tools: FoundTools) -> Sequence[Finding]:
    if settings.runner == "plugins":
        return await box_findings(box_of(settings.plugins), tools.plugins.values())
    if settings.runner != "ductile":
        return ()
    offers = Offers()
    offers.replace(tools.catalog)
    checks = (discovery.check(ductile, offers, settings.ductiles) for ductile in settings.every_ductile().values())
    return [finding for found in await asyncio.gather(*checks) for finding in found]


@commands.command("check")
def check_command(
    config: Path | None = CONFIG_NEARBY,
    tools: Path | None = TOOLS_FOLDER,
    settings_only: bool = flag("Check the settings only, without a connection.", "--settings-only"),
) -> None:
    """Exit code 78 if something is wrong or left out."""
    if settings_only:
        settings = settings_of(config)
        if upgrade := "" if settings.shared else pending_upgrade(settings.store / FILE, MIGRATIONS):
            say(upgrade)
        if settings.runner == "plugins":
            box_of(settings.plugins)
        return
    raise typer.Exit(check(settings_for_tools(config, tools)))


@commands.command(epilog=examples(f"{NAME} new weather", f"{NAME} new weather --lang bash"))
def new(
    name: str = argument("What the tool is called.", "NAME"),
    lang: Language = option("The language of its program.", default="python"),
    tools: Path = option(
        "The folder that holds your tools; made, if it is not there.", default=Path("tools"), metavar="FOLDER"
    ),
) -> None:
    """It works as it is."""
    made = make(name, lang, tools)
    agentic = invocation("agentic", "agent_service")
    gateway = invocation(NAME, "ductile_gateway")
    folder, script = shlex.quote(str(tools)), shlex.quote(str(made / "script.yaml"))
    say(
        f"{made} is made: {', '.join(sorted(path.name for path in made.iterdir()))}\n\n"
        f"  {gateway} check --tools {folder}\n"
        f"  {gateway} call --tools {folder} {name} handle '{EXAMPLE}'\n"
        f"  {agentic} dev --tools {folder} --script {script}\n"
        f"  {agentic} run --watch 'one two three'    # in another terminal"
    )


def make(name: str, language: Language, folder: Path) -> Path:
    if not subjects.NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r} is not {subjects.NAME_FORM}")
    if name in subjects.OUR_OWN_ROUTES:
        raise typer.BadParameter(f"{name} is the name of a part of the program itself: choose another")
    if not str(folder).isprintable():
        raise typer.BadParameter(f"{str(folder)!a} cannot be written into the files of a tool: name another folder")
    made = folder / name
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        made.mkdir(mode=0o755)
        try:
            for path, text in _contents(made, language):
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755 if path.name == PROGRAMS[language] else 0o644)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        raise typer.BadParameter(f"{error.filename or made} cannot be made: {error.strerror}") from error
    return made


def _contents(made: Path, language: Language) -> Iterator[tuple[Path, str]]:
    program = PROGRAMS[language]
    named = {"name": made.name, "program": program, "folder": str(made.parent)}
    templates = files(__package__).joinpath("templates")
    for folder in (templates, templates / language):
        for template in (each for each in folder.iterdir() if each.is_file()):
            text = template.read_text(encoding="utf-8")
            for key, value in named.items():
                text = text.replace("{{" + key + "}}", value)
            yield made / template.name, text


def advice(plugins: Mapping[str, InstalledPlugin], roots: Iterable[Path]) -> Iterator[str]:
    for place in (plugin.folder / MANIFEST for plugin in plugins.values()):
        document = yaml.safe_load(place.read_text(encoding="utf-8"))
        yield from (f"{place}: {flaw}" for flaw in _flaws(document, PluginManifest))
        for command in document["commands"]:
            yield from (f"{place}: command {command.get('name')}: {flaw}" for flaw in _flaws(command, PluginCommand))
    for root in (root for root in roots if not (root / MANIFEST).exists()):
        for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] not in "._"):
            if not (folder / MANIFEST).exists():
                other = next((f" (rename {file.name})" for file in folder.glob("manifest.y*ml")), "")
                yield f"{folder}: no {MANIFEST} is in it, so it is not a plugin{other}"


def _flaws(section: Mapping[str, Any], model: type[BaseModel]) -> Iterator[str]:
    if section.get("name") not in HOUSEKEEPING:
        yield from (f"no `{key}`: {why}" for key, why in WANTED_KEYS[model].items() if not section.get(key))
