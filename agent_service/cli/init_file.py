"""The `agentic.yaml` that `agentic init` writes: what was answered, and what is changed next, in comments. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent_service.cli.init_answers import KEYS, Answers, Login, Model, Secret, Tools

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
    """The whole file. `samples`: the folders of the tools and of the pages that come with the program."""
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
    """As YAML reads it as this text, and no variable in it as one."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False)
