"""`agentic init`: three questions on standard error, and a settings file. An option answers a question in advance.

It writes the file, and a folder for tools where there is none; it contacts nobody.
"""

import importlib.util
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from agent_service.cli import output
from agent_service.cli.options import AsJson, in_place_of, invocation
from agent_service.cli.services import init_file
from agent_service.cli.services.init_file import (
    EMBEDDED,
    KEYS,
    NONE,
    OF_A_FILE,
    SCRIPT,
    Answers,
    Login,
    Model,
    Secret,
    Tools,
    text,
)
from agent_service.cli.whereabouts import OWN
from groundwork.service import installed, store_folder
from groundwork.service.address import login_in
from groundwork.service.commands import examples
from groundwork.service.exits import Exit, NotDone
from groundwork.service.installed import shipped
from schemas.values import dataclass, replace

T = TypeVar("T")

_OF_A_SECRET = {"VARIABLE": "a variable of the environment", "FILE": "a file that holds nothing else"}
ASKED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "--nats": (
        "1  Which NATS server?",
        {"embedded": "one that `agentic dev` brings along", "ADDRESS": "yours, such as nats://127.0.0.1:4222"},
    ),
    "--login": (
        "   How does one log in there?",
        {"none": "", "user:NAME": "", "token": "", "creds:FILE": "JWT and seed", "nkey:FILE": "a seed"},
    ),
    "--login-secret": ("   Where is the password or token?", _OF_A_SECRET),
    "--model": (
        "2  Which model decides?",
        {
            "script": "none: a script does, which needs no key and does not think",
            "FILE.yaml": "another script",
            "anthropic": "Claude; or anthropic/MODEL",
            "openai/MODEL": "OpenAI; or a server of your own: Ollama, vLLM and the like",
        },
    ),
    "--model-url": (
        "   Where does it answer?",
        {"Enter": "at the provider's", "URL": "a server of your own, such as http://127.0.0.1:11434/v1"},
    ),
    "--model-key": ("   Where is its key?", {**_OF_A_SECRET, "none": "it needs none"}),
    "--tools": (
        "3  Which tools?",
        {
            "none": "none of your own yet: some samples are there",
            "FOLDER": "a folder with tools, made if there is none",
            "URL": "those of a Ductile, such as http://127.0.0.1:8080",
        },
    ),
    "--tools-token": ("   Where is the token for Ductile?", _OF_A_SECRET),
}
"""What is asked, and what can be answered."""


@dataclass(frozen=True, slots=True)
class Questions:
    """`given`: what was answered on the command line. `silent`: what was not has its default."""

    given: Mapping[str, str]
    silent: bool
    environ: Mapping[str, str]
    asked: set[str] = field(default_factory=set)

    def answers(self) -> Answers:
        """Raises BadParameter for an option that cannot be meant; KeyboardInterrupt, EOFError where nobody answers."""
        nats = self._ask("--nats", EMBEDDED, init_file.nats)
        answers = Answers(nats=nats, login=self._login(nats), model=self._model(), tools=self._tools())
        for option in self.given.keys() - self.asked:
            raise typer.BadParameter("with the other answers there is no use for it", param_hint=option)
        return answers

    def _login(self, nats: tuple[str, ...]) -> Login | None:
        if not nats or any(login_in(url) for url in nats):
            return None
        login = self._ask("--login", NONE, init_file.login)
        if login is None or login.kind in OF_A_FILE:
            return login
        default = "NATS_TOKEN" if login.kind == "token" else "NATS_PASSWORD"
        return replace(login, secret=self._ask("--login-secret", default, init_file.secret))

    def _model(self) -> Model:
        has_key = self.environ.get(KEYS["anthropic"])
        model = self._ask("--model", "anthropic" if has_key else SCRIPT, init_file.model)
        if model.provider == "scripted":
            return model
        url = self.given.get("--model-url", "")
        if model.provider == "openai" or url:
            url = self._ask("--model-url", "", init_file.model_url)
        default = NONE if url else KEYS[model.provider]
        return self._ask("--model-key", default, lambda text: init_file.with_key(model, text, url))

    def _tools(self) -> Tools:
        tools = self._ask("--tools", NONE, init_file.tools)
        if not tools.ductile:
            return tools
        return replace(tools, token=self._ask("--tools-token", "DUCTILE_TOKEN", init_file.secret))

    def _ask(self, option: str, default: str, read: Callable[[str], T]) -> T:
        self.asked.add(option)
        given = self.given.get(option)
        if given is not None or self.silent:
            try:
                return read(_printable(default if given is None else given.strip()))
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint=option) from error
        question, choices = ASKED[option]
        output.complain("\n".join((question, *(f"     {name:14}{about}".rstrip() for name, about in choices.items()))))
        while True:
            try:
                return read(_printable(output.asked(f"   [{default}] " if default else "   ") or default))
            except ValueError as error:
                output.complain(f"   {error}")


def _option(question: str, choices: Mapping[str, str]) -> Any:
    answers = "; ".join(f"{name}: {about}".removesuffix(": ") for name, about in choices.items())
    told = typer.Option(help=f"{question.lstrip(' 123')} {answers}.", metavar="|".join(choices))
    return Annotated[str | None, told]


OPTIONS = {option[2:].replace("-", "_"): _option(*asked) for option, asked in ASKED.items()}


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it has a character that cannot be shown: type it again")
    return text


commands = typer.Typer()


@commands.command(
    epilog=examples(
        "agentic init",
        "agentic init --yes --model anthropic --tools tools",
        "agentic init --yes --nats tls://bus:4222 --login nkey:/etc/agentic/agent.nk --model openai/gpt-5",
    ),
)
@in_place_of("given", OPTIONS)
def init(
    given: dict[str, str] | None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: what is not given has its default.")] = False,
    config: Annotated[Path, typer.Option(help="The file to write; it is never overwritten.", metavar="FILE")] = OWN,
    as_json: AsJson = False,
) -> None:
    """It asks, and contacts nobody. It asks for no secret, but for where one is: a variable of the environment, or a
    file."""
    _refuse_to_overwrite(config)
    try:
        answers = Questions(
            {f"--{name}".replace("_", "-"): text for name, text in (given or {}).items()},
            silent=yes,
            environ=os.environ,
        ).answers()
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
    if not store_folder.create(config, text(answers, samples)):
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
