"""`agentic init`: three questions, and a settings file. It writes nothing else, but for a folder for tools that is not
there yet, and it contacts nobody."""

import importlib.util
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from agent_service.cli import output
from agent_service.cli.complaints import NotDone
from agent_service.cli.configuration import OWN
from agent_service.cli.exits import Exit
from agent_service.cli.init_answers import Answers, Secret
from agent_service.cli.init_file import text
from agent_service.cli.init_questions import Questions
from agent_service.cli.options import AsJson, invocation
from groundwork.service import installed, private_file
from groundwork.service.commands import examples
from groundwork.service.shipped import shipped

commands = typer.Typer()

_A_SECRET = "VARIABLE|FILE"  # noqa: S105 - how an option is shown


@commands.command(
    epilog=examples(
        "agentic init",
        "agentic init --yes --model anthropic --tools tools",
        "agentic init --yes --nats tls://bus:4222 --login nkey:/etc/agentic/agent.nk --model openai/gpt-5",
    ),
)
def init(
    nats: Annotated[
        str | None, typer.Option(help="`embedded`, or the address of a NATS server.", metavar="ADDRESS")
    ] = None,
    login: Annotated[
        str | None,
        typer.Option(help="How one logs in there: none, user:NAME, token, creds:FILE or nkey:FILE.", metavar="LOGIN"),
    ] = None,
    login_secret: Annotated[
        str | None, typer.Option(help="Where the password or token for that is.", metavar=_A_SECRET)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="script, a script FILE.yaml, anthropic, anthropic/MODEL or openai/MODEL.", metavar="MODEL"),
    ] = None,
    model_url: Annotated[
        str | None, typer.Option(help="Where a server of your own speaks the provider's API.", metavar="URL")
    ] = None,
    model_key: Annotated[str | None, typer.Option(help="Where its key is; or none.", metavar=_A_SECRET)] = None,
    tools: Annotated[
        str | None, typer.Option(help="none, a folder for tools, or the address of a Ductile.", metavar="TOOLS")
    ] = None,
    tools_token: Annotated[str | None, typer.Option(help="Where the token for Ductile is.", metavar=_A_SECRET)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: what is not given has its default.")] = False,
    config: Annotated[Path, typer.Option(help="The file to write; it is never overwritten.", metavar="FILE")] = OWN,
    as_json: AsJson = False,
) -> None:
    """It asks, and contacts nobody. It asks for no secret, but for where one is: a variable of the environment, or a
    file."""
    given = {
        "--nats": nats,
        "--login": login,
        "--login-secret": login_secret,
        "--model": model,
        "--model-url": model_url,
        "--model-key": model_key,
        "--tools": tools,
        "--tools-token": tools_token,
    }
    _refuse_to_overwrite(config)
    try:
        answers = Questions(given, silent=yes, environ=os.environ).answers()
    except (KeyboardInterrupt, EOFError):
        output.complain("")
        raise NotDone(f"left, and {config} is not written; with --yes nothing is asked", Exit.INTERRUPTED) from None
    _write(config, answers)
    first, following = list(_first(answers)), list(_next(config, answers))
    told = "\n".join((f"{config} is written, for you alone", *_shown("first", first), *_shown("next", following)))
    facts = {"config": str(config), "first": [one for one, _ in first], "next": [one for one, _ in following]}
    output.tell(facts, told, as_json=as_json)


def _refuse_to_overwrite(config: Path) -> None:
    if config.exists() or config.is_symlink():
        message = f"{config} is there already, and stays as it is: change it, or write another with --config FILE"
        raise NotDone(message, Exit.REFUSED)


def _write(config: Path, answers: Answers) -> None:
    samples = {"tools": shipped("deploy", "ductile", "plugins"), "pages": shipped("deploy", "knowledge")}
    if answers.tools.folder:
        Path(answers.tools.folder).mkdir(parents=True, exist_ok=True)
    if not private_file.create(config, text(answers, samples)):
        _refuse_to_overwrite(config)


def _first(answers: Answers) -> Iterator[tuple[str, str]]:
    for secret in _secrets(answers):
        if secret.is_variable and not os.environ.get(secret.place):
            yield f"export {secret.place}=...", "where both services and these commands start"
    if answers.model.provider == "openai" and importlib.util.find_spec("openai") is None:
        yield "pip install 'agentic-loop-nats[openai]'", ""


def _secrets(answers: Answers) -> Iterable[Secret]:
    login = answers.login.secret if answers.login else None
    return [secret for secret in (login, answers.model.key, answers.tools.token) if secret]


def _next(config: Path, answers: Answers) -> Iterator[tuple[str, str]]:
    agentic, gateway = invocation(), installed.invocation("ductile-gateway", "ductile_gateway")
    file = "" if config == OWN else f" --config {shlex.quote(str(config))}"
    if answers.nats:
        yield f"{agentic} setup{file}", "creates streams, consumers and buckets on the server"
        yield f"{gateway} serve{file}", "this and the next each in a terminal of its own, or as a service"
        yield f"{agentic} serve{file}", ""
    else:
        yield f"{agentic} dev{file}", "everything in one terminal, until Ctrl-C"
    yield f"{agentic} doctor{file}", "in another one: says what is missing, and what to do about it"
    yield f"{agentic} run --watch 'show me how this works'", ""


def _shown(title: str, commands: Sequence[tuple[str, str]]) -> Iterator[str]:
    if commands:
        width = max((len(command) for command, about in commands if about), default=0)
        yield f"\n{title}"
        yield from (f"  {command:{width}}  {f'# {about}' if about else ''}".rstrip() for command, about in commands)
