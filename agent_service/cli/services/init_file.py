"""Reads the answers of `agentic init` (ValueError says what can be answered), and writes its `agentic.yaml`. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from groundwork.service.address import keeps_secrets
from schemas.values import dataclass, replace

EMBEDDED, NONE, SCRIPT = "embedded", "none", "script"
PROVIDERS = ("anthropic", "openai")
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
LOGINS = ("user", "token", "creds", "nkey")
OF_A_FILE = ("creds", "nkey")

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_WITHOUT_BLANKS = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Secret:
    place: str

    @property
    def is_variable(self) -> bool:
        return bool(_VARIABLE.fullmatch(self.place))


@dataclass(frozen=True, slots=True)
class Login:
    kind: str
    value: str = ""
    secret: Secret | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """`model` is an id, or the file of a script."""

    provider: str
    model: str = ""
    key: Secret | None = None
    base_url: str = ""


@dataclass(frozen=True, slots=True)
class Tools:
    folder: str = ""
    ductile: str = ""
    token: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """`nats`: addresses; none for the server that `agentic dev` brings along."""

    nats: tuple[str, ...]
    login: Login | None
    model: Model
    tools: Tools


def nats(text: str) -> tuple[str, ...]:
    if text == EMBEDDED:
        return ()
    urls = tuple(url if "://" in url else f"nats://{url}" for url in map(str.strip, text.split(",")))
    for url in urls:
        if not _is_address(url, ("nats", "tls", "ws", "wss")):
            raise ValueError(f"answer `{EMBEDDED}`, or with an address such as nats://127.0.0.1:4222 or tls://bus:4222")
    return urls


def login(text: str) -> Login | None:
    if text == NONE:
        return None
    kind, _, value = text.partition(":")
    if kind not in LOGINS or (kind != "token") != bool(value):
        raise ValueError("answer `none`, `token`, `user:NAME`, `creds:FILE` or `nkey:FILE`")
    if kind in OF_A_FILE and not Path(value).expanduser().is_file():
        raise ValueError(f"there is no file {value}")
    return Login(kind, str(Path(value).expanduser()) if kind in OF_A_FILE else value)


def secret(text: str) -> Secret:
    """The name of a variable or a file. Anything else may be the secret itself, so it is not repeated."""
    if _VARIABLE.fullmatch(text):
        return Secret(text)
    file = Path(text).expanduser()
    if not file.is_file():
        raise ValueError("name a variable of the environment in capitals, or a file that is there; not the secret")
    return Secret(str(file))


def model(text: str) -> Model:
    if text == SCRIPT:
        return Model("scripted")
    if text.endswith((".yaml", ".yml")):
        if not Path(text).expanduser().is_file():
            raise ValueError(f"there is no script {text}")
        return Model("scripted", str(Path(text).expanduser()))
    provider, _, name = text.partition("/")
    if provider not in PROVIDERS or (name and not _WITHOUT_BLANKS.fullmatch(name)):
        raise ValueError(
            "answer `script`, a file such as script.yaml, `anthropic`, `anthropic/MODEL` or `openai/MODEL`"
        )
    if provider == "openai" and not name:
        raise ValueError("say which model, such as openai/gpt-5, or openai/qwen3:32b of a server of your own")
    return Model(provider, name)


def model_url(text: str) -> str:
    if text and not _is_address(text, ("http", "https")):
        raise ValueError("answer with an address such as http://127.0.0.1:11434/v1, or with nothing")
    return text


def tools(text: str) -> Tools:
    if text == NONE:
        return Tools()
    if "://" not in text:
        folder = Path(text).expanduser()
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{text} is no folder")
        return Tools(folder=str(folder))
    if not _is_address(text, ("http", "https")) or "@" in text:
        raise ValueError("a Ductile has an address such as http://127.0.0.1:8080, without a user")
    if not keeps_secrets(text):
        raise ValueError("its token would go over plain http to another machine: use https, or a tunnel to this one")
    return Tools(ductile=text)


def with_key(answer: Model, text: str, base_url: str) -> Model:
    key = None if text == NONE else secret(text)
    if key and base_url and not keeps_secrets(base_url):
        raise ValueError("the key would go over plain http to another machine: use https, or no key")
    return replace(answer, key=key, base_url=base_url)


def _is_address(url: str, schemes: tuple[str, ...]) -> bool:
    try:
        address = urlsplit(url)
        port = address.port
    except ValueError:
        return False
    return address.scheme in schemes and bool(address.hostname) and port != 0 and bool(_WITHOUT_BLANKS.fullmatch(url))


_PLAIN = re.compile(r"[A-Za-z/~.][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
"""What YAML reads as something else than text."""
HEAD = """\
# Settings of the agent and of the gateway, as `agentic init` wrote them. What is not here has its default:
# docs/CONFIGURATION.md lists every setting. A misspelt one is an error. `agentic doctor` checks all of them.
# Relative paths begin where the program is started.
"""
NO_BUS = """\
# nats: # `agentic dev` brings a server along; for `agentic serve` and `ductile-gateway serve` name one:
#   urls: ["nats://127.0.0.1:4222"]
"""
OF_THE_AGENT = """\
  limits: # a run that reaches one ends, or asks a person; a start may ask for less, and for more up to cap_...
    max_steps: 10
    # max_cost_usd: 1.00   # of one run
    # usd_per_day: 10.00   # of all runs together
  # tools: [fetch]                       # only these; without it all that are offered
  # approve: {mail.send: always}         # when a person must allow a call, whatever its tool says
  # store: .agentic/agent                # the journal of all runs: back it up, `agentic backup FILE`
  # keep_runs: {done_days: 90, failed_days: 90, cancelled_days: 30}    # without it for ever
  # http:                                # on 127.0.0.1:8700, where all who are on this machine may ask
  #   tokens: [{name: me, token_file: /run/secrets/agentic}]           # openssl rand -hex 24
"""
LOOKED_AT = "reload: true # what changes in the folders counts at once"


def text(answers: Answers, samples: Mapping[str, Path]) -> str:
    return "\n".join(
        (
            HEAD,
            "\n".join(_nats(answers)) if answers.nats else NO_BUS.rstrip(),
            "",
            "agent:",
            *_model(answers.model),
            OF_THE_AGENT,
            "gateway:",
            *_tools(answers, samples),
            "",
        )
    )


def _nats(answers: Answers) -> Iterator[str]:
    yield "nats:"
    yield f"  urls: [{', '.join(map(json.dumps, answers.nats))}]"
    if answers.login:
        yield from _login(answers.login)
    if any(url.startswith("tls://") for url in answers.nats):
        yield "  # tls_ca: /etc/agentic/ca.pem   # where its certificate is not of a public authority"


def _login(login: Login) -> Iterator[str]:
    match login.kind, login.secret:
        case "creds" | "nkey" as kind, _:
            yield f"  {'creds_file' if kind == 'creds' else 'nkey_seed_file'}: {_value(login.value)}"
        case "user", Secret() as password:
            yield f"  user: {_value(login.value)}"
            yield f"  {_secret('password', password)}"
        case _, Secret() as token:
            yield f"  {_secret('token', token)}"


def _model(model: Model) -> Iterator[str]:
    yield "  model:"
    if model.provider == "scripted":
        yield "    provider: scripted # follows a script and does not think; later anthropic or openai, with a model"
        yield (
            f"    script: {_value(model.model)}"
            if model.model
            else "    # script: script.yaml   # else that of the demo"
        )
        return
    yield f"    provider: {model.provider}"
    yield f"    model: {_value(model.model)}" if model.model else "    # model: claude-sonnet-5-5"
    if model.base_url:
        yield f"    base_url: {_value(model.base_url)}"
        yield "    # price: {input: 0, output: 0}   # USD per million tokens; without it no limit in USD is kept"
    if model.key and model.key.place == KEYS[model.provider]:
        yield f"    # its key is in {model.key.place}; or name a file: api_key_file: /run/secrets/key"
    elif model.key:
        yield f"    {_secret('api_key', model.key)}"


def _tools(answers: Answers, samples: Mapping[str, Path]) -> Iterator[str]:
    tools = answers.tools
    if tools.ductile:
        yield from _ductile(tools)
        return
    yield "  plugins: # each folder in them is a tool; `ductile-gateway new NAME` makes one"
    if tools.folder:
        yield f"    folders: [{_value(tools.folder)}]"
    elif answers.nats:
        yield f"    folders: [{_value(str(samples['tools']))}] # the samples, until you have your own"
        yield f"    config: {{knowledge: {{folder: {_value(str(samples['pages']))}}}}}"
    else:
        yield "    folders: [] # `agentic dev` has the samples besides, and more with --tools FOLDER"
    yield f"    {LOOKED_AT if tools.folder else f'# {LOOKED_AT}'}"


def _ductile(tools: Tools) -> Iterator[str]:
    yield "  runner: ductile"
    yield "  ductile:"
    yield f"    url: {_value(tools.ductile)}"
    if tools.token:
        yield f"    {_secret('token', tools.token)}"
    yield "  # tools: [echo]   # only these plugins of it; without it all"


def _secret(name: str, secret: Secret) -> str:
    return f"{name}: ${{{secret.place}}}" if secret.is_variable else f"{name}_file: {_value(secret.place)}"


def _value(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False)
