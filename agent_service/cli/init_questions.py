"""The questions of `agentic init`, on standard error. One that an option answers is not asked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import typer

from agent_service.cli import init_answers, output
from agent_service.cli.init_answers import EMBEDDED, KEYS, NONE, OF_A_FILE, SCRIPT, Answers, Login, Model, Tools
from groundwork.service.address import login_in

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

    given: Mapping[str, str | None]
    silent: bool
    environ: Mapping[str, str]
    asked: set[str] = field(default_factory=set)

    def answers(self) -> Answers:
        """Raises BadParameter for an option that cannot be meant; KeyboardInterrupt, EOFError where nobody answers."""
        nats = self._ask("--nats", EMBEDDED, init_answers.nats)
        answers = Answers(nats=nats, login=self._login(nats), model=self._model(), tools=self._tools())
        for option in self.given.keys() - self.asked:
            if self.given[option] is not None:
                raise typer.BadParameter("with the other answers there is no use for it", param_hint=option)
        return answers

    def _login(self, nats: tuple[str, ...]) -> Login | None:
        """Not asked for where there is none, or where it stands in the address."""
        if not nats or any(login_in(url) for url in nats):
            return None
        login = self._ask("--login", NONE, init_answers.login)
        if login is None or login.kind in OF_A_FILE:
            return login
        default = "NATS_TOKEN" if login.kind == "token" else "NATS_PASSWORD"
        return replace(login, secret=self._ask("--login-secret", default, init_answers.secret))

    def _model(self) -> Model:
        has_key = self.environ.get(KEYS["anthropic"])
        model = self._ask("--model", "anthropic" if has_key else SCRIPT, init_answers.model)
        if model.provider == "scripted":
            return model
        url = self.given["--model-url"] or ""
        if model.provider == "openai" or url:
            url = self._ask("--model-url", "", init_answers.model_url)
        default = NONE if url else KEYS[model.provider]
        return self._ask("--model-key", default, lambda text: init_answers.with_key(model, text, url))

    def _tools(self) -> Tools:
        tools = self._ask("--tools", NONE, init_answers.tools)
        if not tools.ductile:
            return tools
        return replace(tools, token=self._ask("--tools-token", "DUCTILE_TOKEN", init_answers.secret))

    def _ask(self, option: str, default: str, read: Callable[[str], T]) -> T:
        self.asked.add(option)
        given = self.given[option]
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


def _printable(text: str) -> str:
    """Raises ValueError for what no file of settings can hold."""
    if not text.isprintable():
        raise ValueError("it has a character that cannot be shown: type it again")
    return text
