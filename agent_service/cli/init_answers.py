"""What may be answered to the questions of `agentic init`, each read by a function of its name. All raise ValueError,
which says what can be answered instead."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from groundwork.service.address import keeps_secrets

EMBEDDED, NONE, SCRIPT = "embedded", "none", "script"
PROVIDERS = ("anthropic", "openai")
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
LOGINS = ("user", "token", "creds", "nkey")
OF_A_FILE = ("creds", "nkey")

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_WITHOUT_BLANKS = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is: never the secret itself."""

    place: str

    @property
    def is_variable(self) -> bool:
        return bool(_VARIABLE.fullmatch(self.place))


@dataclass(frozen=True, slots=True)
class Login:
    """`kind` is one of LOGINS; `value` its name, or its file."""

    kind: str
    value: str = ""
    secret: Secret | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """`model` is its id, or the file of a script."""

    provider: str
    model: str = ""
    key: Secret | None = None
    base_url: str = ""


@dataclass(frozen=True, slots=True)
class Tools:
    """A folder of plugin folders, or the address of a Ductile; else none of one's own."""

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
    """Addresses, apart by commas; none of the word `embedded`."""
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
    """The name of a variable or of a file. What is neither may be the secret itself, so that it is not repeated."""
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
    """Empty for the provider's own."""
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
    """The model with where it is and where its key is, which may be nowhere."""
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
