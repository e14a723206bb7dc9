"""Writes the text of the `agentic.yaml` of `agentic init`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Answers = dict[str, Any]
"""Parsed answers by question (`init.QUESTIONS`), without those that were not asked."""
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
PASSWORD, TOKEN, DUCTILE_TOKEN = "NATS_PASSWORD", "NATS_TOKEN", "DUCTILE_TOKEN"

FILE = """\
# Settings of the agent and of the gateway, as `agentic init` wrote them. What is not here has its default:
# docs/CONFIGURATION.md lists every setting. A misspelt one is an error. `agentic doctor` checks all of them.
# Relative paths begin where the program is started.

{nats}

agent:
  model:
{model}
  limits: # a run that reaches one ends, or asks a person; a start may ask for less, and for more up to cap_...
    max_steps: 10
    # max_cost_usd: 1.00   # of one run
    # usd_per_day: 10.00   # of all runs together
  # tools: [fetch]                       # only these; without it all that are offered
  # approve: {{mail.send: always}}         # when a person must allow a call, whatever its tool says
  # store: .agentic/agent                # the journal of all runs: back it up, `agentic backup FILE`
  # keep_runs: {{done_days: 90, failed_days: 90, cancelled_days: 30}}    # without it for ever
  # http:                                # on 127.0.0.1:8700, open to everyone on this machine
  #   tokens: [{{name: me, token_file: /run/secrets/agentic}}]           # openssl rand -hex 24

gateway:
{tools}
"""
NO_BUS = """\
# nats: # `agentic dev` brings a server along; for `agentic serve` and `ductile-gateway serve` name one:
#   urls: ["nats://127.0.0.1:4222"]"""
LOOKED_AT = "reload: true # what changes in the folders counts at once"


def variables(answers: Answers) -> Iterator[str]:
    """Yields the environment variables that hold the secrets of the file."""
    kind, (provider, _) = answers.get("login", ("", ""))[0], answers["model"]
    yield from {"user": [PASSWORD], "token": [TOKEN]}.get(kind, [])
    yield from [KEYS[provider]] if provider in KEYS and not answers["model_url"] else []
    yield from [DUCTILE_TOKEN] if "://" in answers["tools"] else []


def settings_file(answers: Answers, samples: Mapping[str, Path]) -> str:
    """`samples` are the folders of the shipped tools and pages."""
    nats = "\n".join(_nats(answers)) if answers["nats"] else NO_BUS
    return FILE.format(nats=nats, model="\n".join(_model(answers)), tools="\n".join(_tools(answers, samples)))


def _nats(answers: Answers) -> Iterator[str]:
    yield "nats:"
    yield f"  urls: [{', '.join(map(json.dumps, answers['nats']))}]"
    kind, value = answers.get("login", ("none", ""))
    if name := {"creds": "creds_file", "nkey": "nkey_seed_file", "user": "user"}.get(kind):
        yield f"  {name}: {_value(value)}"
    if kind in ("user", "token"):
        name, variable = ("token", TOKEN) if kind == "token" else ("password", PASSWORD)
        yield f"  {name}: ${{{variable}}} # or {name}_file: /run/secrets/nats"
    if any(url.startswith("tls://") for url in answers["nats"]):
        yield "  # tls_ca: /etc/agentic/ca.pem   # where its certificate is not of a public authority"


def _model(answers: Answers) -> Iterator[str]:
    provider, model = answers["model"]
    if provider == "scripted":
        yield "    provider: scripted # follows a script and does not think; later anthropic or openai, with a model"
        yield f"    script: {_value(model)}" if model else "    # script: script.yaml   # else that of the demo"
        return
    yield f"    provider: {provider}"
    yield f"    model: {_value(model)}" if model else "    # model: claude-sonnet-5-5"
    if answers["model_url"]:
        yield f"    base_url: {_value(answers['model_url'])}"
        yield "    # price: {input: 0, output: 0}   # USD per million tokens; without it no limit in USD is kept"
        yield "    # api_key_file: /run/secrets/agentic   # where it asks for a key"
    else:
        yield f"    # its key is in {KEYS[provider]}; or name a file: api_key_file: /run/secrets/key"


def _tools(answers: Answers, samples: Mapping[str, Path]) -> Iterator[str]:
    tools = answers["tools"]
    if "://" in tools:
        yield f"  runner: ductile\n  ductile:\n    url: {_value(tools)}"
        yield f"    token: ${{{DUCTILE_TOKEN}}} # or token_file: /run/secrets/ductile"
        yield "  # tools: [echo]   # only these plugins of it; without it all"
        return
    yield "  plugins: # each folder in them is a tool; `ductile-gateway new NAME` makes one"
    if tools:
        yield f"    folders: [{_value(tools)}]"
    elif answers["nats"]:
        yield f"    folders: [{_value(str(samples['tools']))}] # the samples, until you have your own"
        yield f"    config: {{knowledge: {{folder: {_value(str(samples['pages']))}}}}}"
    else:
        yield "    folders: [] # `agentic dev` has the samples besides, and more with --tools FOLDER"
    yield f"    {LOOKED_AT if tools else f'# {LOOKED_AT}'}"


def _value(text: str) -> str:
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False)
