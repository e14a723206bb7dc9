"""`agentic init` asks three questions on standard error and writes a settings file. An option answers a question in
advance.

It also creates a missing folder for tools. It makes no connection.
"""

import importlib.util
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import typer

from agent_service.cli import output
from agent_service.cli.options import invocation, local_command
from agent_service.cli.output import Output
from agent_service.models.settings import KEYS
from groundwork.service import program, store_folder
from groundwork.service.commands import flag, option
from groundwork.service.config_file import FILE
from groundwork.service.errors import Exit, NotDone
from groundwork.service.secret import is_address, keeps_secrets, login_in
from schemas.values import dataclass

Answers = dict[str, Any]
"""Parsed answers by question, without those that were not asked."""

LOGIN_SECRETS = {"user": "NATS_PASSWORD", "token": "NATS_TOKEN"}
TEMPLATE = Path(__file__).with_name("agentic.yaml.jinja")
NONE = "none"


def _nats(text: str) -> tuple[str, ...]:
    """Returns the addresses; none for the server that `agentic dev` starts."""
    urls = tuple(url if "://" in url else f"nats://{url}" for url in map(str.strip, text.split(",")))
    if text != "embedded" and not all(is_address(url, "nats", "tls") for url in urls):
        raise ValueError("answer `embedded`, or with an address such as nats://127.0.0.1:4222 or tls://bus:4222")
    return () if text == "embedded" else urls


def _login(text: str) -> tuple[str, str]:
    kind, _, value = text.partition(":")
    if kind not in (NONE, "user", "token", "creds", "nkey") or (kind in (NONE, "token")) == bool(value):
        raise ValueError("answer `none`, `token`, `user:NAME`, `creds:FILE` or `nkey:FILE`")
    return kind, _file(value, "there is no file {}") if kind in ("creds", "nkey") else value


def _model(text: str) -> tuple[str, str]:
    """Returns the provider, and the model id or the file of a script."""
    if text == "script":
        return "scripted", ""
    if text.endswith((".yaml", ".yml")):
        return "scripted", _file(text, "there is no script {}")
    provider, _, name = text.partition("/")
    if provider not in KEYS or not name.isascii() or " " in name:
        raise ValueError(
            "answer `script`, a file such as script.yaml, `anthropic`, `anthropic/MODEL` or `openai/MODEL`"
        )
    if provider == "openai" and not name:
        raise ValueError("say which model, such as openai/gpt-5, or openai/qwen3:32b of a server of your own")
    return provider, name


def _model_url(text: str) -> str:
    if text and not is_address(text, "http", "https"):
        raise ValueError("answer with an address such as http://127.0.0.1:11434/v1, or with nothing")
    return text


def _tools(text: str) -> str:
    """Returns a folder or the address of a Ductile."""
    if text == NONE:
        return ""
    if not text:
        raise ValueError(f"name a folder, the address of a Ductile, or `{NONE}`")
    if "://" not in text:
        folder = Path(text).expanduser()
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{text} is not a folder")
        return str(folder)
    if not is_address(text, "http", "https") or "@" in text:
        raise ValueError("a Ductile has an address such as http://127.0.0.1:8080, without a user")
    if not keeps_secrets(text):
        raise ValueError("its token would go over plain http to another machine: use https, or a tunnel to this one")
    return text


def _file(text: str, refused: str) -> str:
    path = Path(text).expanduser()
    if not path.is_file():
        raise ValueError(refused.format(text))
    return str(path)


@dataclass(frozen=True, slots=True)
class InitQuestion:
    """`read` raises ValueError that lists the valid answers. `applies` is False where earlier answers make the question
    pointless; `asks` is False where only an option answers it."""

    text: str
    choices: Mapping[str, str]
    read: Callable[[str], Any]
    default: str = NONE
    applies: Callable[[Answers], bool] = lambda _: True
    asks: Callable[[Answers], bool] = lambda _: True


QUESTIONS = {
    "nats": InitQuestion(
        "1  Which NATS server?",
        {"embedded": "one that `agentic dev` brings along", "ADDRESS": "yours, such as nats://127.0.0.1:4222"},
        _nats,
        "embedded",
    ),
    "login": InitQuestion(
        "   How does one log in there?",
        {"none": "", "user:NAME": "", "token": "", "creds:FILE": "JWT and seed", "nkey:FILE": "a seed"},
        _login,
        applies=lambda answers: bool(answers["nats"]) and not any(map(login_in, answers["nats"])),
    ),
    "model": InitQuestion(
        "2  Which model decides?",
        {
            "script": "no model: a script decides, without a key",
            "FILE.yaml": "another script",
            "anthropic": "Claude; or anthropic/MODEL",
            "openai/MODEL": "OpenAI; or a server of your own: Ollama, vLLM and the like",
        },
        _model,
        "script",
    ),
    "model_url": InitQuestion(
        "   Where does it answer?",
        {"Enter": "at the provider's", "URL": "a server of your own, such as http://127.0.0.1:11434/v1"},
        _model_url,
        "",
        lambda answers: answers["model"][0] in KEYS,
        lambda answers: bool(answers["model"][0] == "openai"),
    ),
    "tools": InitQuestion(
        "3  Which tools?",
        {
            "none": "none of your own yet: some samples are there",
            "FOLDER": "a folder with tools, made if there is none",
            "URL": "those of a Ductile, such as http://127.0.0.1:8080",
        },
        _tools,
    ),
}


def _answers(given: Mapping[str, str], *, silent: bool) -> Answers:
    """Raises BadParameter for an invalid option, and Abort without an answer."""
    answers: Answers = {}
    for name, question in QUESTIONS.items():
        hint, option_text = f"--{name.replace('_', '-')}", given.get(name)
        if not question.applies(answers):
            if option_text is not None:
                raise typer.BadParameter("with the other answers there is no use for it", param_hint=hint)
            continue
        thinks = name == "model" and os.environ.get(KEYS["anthropic"])
        default = "anthropic" if thinks else question.default
        if option_text is None and not silent and question.asks(answers):
            answers[name] = _asked(question, default)
        else:
            answers[name] = _read(question, default if option_text is None else option_text, hint)
    return answers


def _asked(question: InitQuestion, default: str) -> Any:
    choices = (f"     {name:14}{about}".rstrip() for name, about in question.choices.items())
    output.print_error("\n".join((question.text, *choices)))
    return typer.prompt("  ", default, show_default=bool(default), value_proc=partial(_read, question), err=True)


def _read(question: InitQuestion, text: str, hint: str | None = None) -> Any:
    if not text.isprintable():
        raise typer.BadParameter("it has a character that cannot be shown: type it again", param_hint=hint)
    try:
        return question.read(text.strip())
    except (ValueError, RuntimeError) as error:  # the latter for the home of a user that there is not
        raise typer.BadParameter(str(error), param_hint=hint) from error


def _option(question: InitQuestion) -> tuple[Any, Any]:
    choices = "; ".join(f"{name}: {about}".removesuffix(": ") for name, about in question.choices.items())
    return str, option(f"{question.text.lstrip(' 123')} {choices}.", metavar="|".join(question.choices))


commands = typer.Typer()


@local_command(
    commands,
    "agentic init",
    "agentic init --yes --model anthropic --tools tools",
    "agentic init --yes --nats tls://bus:4222 --login nkey:/etc/agentic/agent.nk --model openai/gpt-5",
    given={name: _option(question) for name, question in QUESTIONS.items()},
)
def init(
    given: dict[str, str],
    yes: bool = flag("Ask nothing: what is not given has its default.", "--yes", "-y"),
    config: Path = option("The file to write; it is never overwritten.", default=FILE, metavar="FILE"),
) -> Output:
    """It connects to nothing and asks for no secret: the file names the environment variables that hold secrets."""
    _refuse_to_overwrite(config)
    answers = _answers(given, silent=yes)
    if answers["tools"] and "://" not in answers["tools"]:
        Path(answers["tools"]).mkdir(parents=True, exist_ok=True)
    if not store_folder.create(config, settings_file(answers)):
        _refuse_to_overwrite(config)
    first, following = list(_first(answers)), list(_next(config, answers))
    parts = [f"{config} is written, for you alone", *(["", "first", *first] if first else []), "", "next", *following]
    facts = {"config": str(config), "first": list(map(_command, first)), "next": list(map(_command, following))}
    return Output(facts, "\n".join(parts))


def _command(line: str) -> str:
    return line.partition("#")[0].strip()


def _refuse_to_overwrite(config: Path) -> None:
    if config.exists() or config.is_symlink():
        message = f"{config} is there already, and stays as it is: change it, or write another with --config FILE"
        raise NotDone(message, Exit.REFUSED)


def _first(answers: Answers) -> Iterator[str]:
    """Environment variables that hold the secrets of the file, and a package."""
    kind, (provider, _) = answers.get("login", ("", ""))[0], answers["model"]
    names = (
        LOGIN_SECRETS.get(kind),
        KEYS.get(provider) if not answers.get("model_url") else None,
        "DUCTILE_TOKEN" if "://" in answers["tools"] else None,
    )
    for name in filter(None, names):
        if not os.environ.get(name):
            yield f"  export {name}=...  # where both services and these commands start"
    if answers["model"][0] == "openai" and importlib.util.find_spec("openai") is None:
        yield "  pip install 'agentic-loop-nats[openai]'"


def _next(config: Path, answers: Answers) -> Iterator[str]:
    agentic, gateway = invocation(), program.invocation("ductile-gateway", "ductile_gateway")
    file = "" if config == FILE else f" --config {shlex.quote(str(config))}"
    if answers["nats"]:
        yield f"  {agentic} setup{file}  # creates streams, consumers and buckets on the server"
        yield f"  {gateway} serve{file}  # this and the next each in a terminal of its own, or as a service"
        yield f"  {agentic} serve{file}"
    else:
        yield f"  {agentic} dev{file}  # everything in one terminal, until Ctrl-C"
        file = ""  # its addresses are those of `agentic dev`
    yield f"  {agentic} doctor{file}  # in another one: says what is missing, and what to do about it"
    yield f"  {agentic} run --watch 'show me how this works'"


def settings_file(answers: Answers) -> str:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)  # noqa: S701 # YAML
    environment.filters["value"] = _value
    environment.tests["startswith"] = str.startswith
    (provider, model), (login, login_value) = answers["model"], answers.get("login", ("none", ""))
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        answers,
        provider=provider,
        model=model,
        key=KEYS.get(provider),
        login=login,
        login_value=login_value,
        shipped_tools=program.shipped("deploy", "ductile", "plugins"),
        shipped_pages=program.shipped("deploy", "knowledge"),
    )


def _value(text: str | Path) -> str:
    return json.dumps(str(text).replace("${", "$${"), ensure_ascii=False)
