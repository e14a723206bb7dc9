"""Settings that `agentic dev` takes from a file, and its errors for unusable ones."""

import json
from pathlib import Path

import pytest

from agent_service.workbench.dev_settings import PLUGINS, DevOptions, settings_of
from tests.cli.invoke import agentic_here

IN_EARNEST = """
nats: {urls: [nats://bus:4222]}
agent:
  store: /var/lib/agentic/agent
  http: {port: 8700, tokens: [{name: all, token_file: /run/secrets/none}]}
  model: {provider: anthropic, api_key: "${KEY}"}
  approve: {mail.send: always}
gateway:
  keys_file: /etc/keys
  plugins: {folders: [tools], config: {mail: {token: "${MAIL}"}}, limits: {cpu_s: 3}}
  tools: [mail]
"""


def test_all_counts_but_where_things_are_kept_and_where_services_listen_and_variables_stay(tmp_path: Path) -> None:
    (file := tmp_path / "agentic.yaml").write_text(IN_EARNEST)
    made = json.loads(json.dumps(settings_of(DevOptions(folder=tmp_path, file=file), "nats://127.0.0.1:1", 2, 3)))
    agent, gateway, plugins = made["agent"], made["gateway"], made["gateway"]["plugins"]
    assert made["nats"] == {"urls": ["nats://127.0.0.1:1"]}
    assert (agent["store"], agent["http"]) == (str(tmp_path / "agent"), {"host": "127.0.0.1", "port": 2})
    assert (agent["approve"], agent["model"]["api_key"]) == ({"mail.send": "always"}, "${KEY}")
    assert (gateway["tools"], "keys_file" in gateway) == (["mail"], False)
    assert plugins["folders"] == ["tools", str(PLUGINS)], "those of the file come first"
    assert (plugins["limits"], plugins["reload"]) == ({"cpu_s": 3}, True)
    assert (plugins["config"].keys(), plugins["config"]["mail"]) == ({"knowledge", "mail"}, {"token": "${MAIL}"})


BROKEN = {
    "agent: [": "not valid YAML",
    "- agent": "expected settings",
    "agent: 3": "agent: expected settings",
    "gateway: {plugins: {folders: tools}}": "must be a list",
    "gateway: {plugins: {folders: 5}}": "must be a list",
    "gateway: {plugins: {config: 5}}": "must be settings",
    "agent: {limits: {max_step: 3}}": "did you mean max_steps",
    "agent: {trace_url: 'http://x/'}": "an address with {trace_id} in it",
    "gateway: {slot: 3}": "did you mean slots",
}


def test_a_file_that_cannot_be_used_is_refused_at_once_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text, why in BROKEN.items():
        (tmp_path / "agentic.yaml").write_text(text)
        called = agentic_here("dev", "--http-port", "0")
        assert (called.code, why in called.err) == (78, True), called
