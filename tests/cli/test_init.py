"""Settings files: `agentic init` asks three questions and writes one, and `agentic dev` takes from one."""

import io
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

import agent_service.settings
import ductile_gateway.settings
from agent_service.settings import AgentSettings
from agent_service.workbench.dev_settings import PLUGINS, DevOptions, settings_of
from ductile_gateway.settings import GatewaySettings
from tests.cli.invoke import Called, agentic_here

A_SECRET = "a-secret-of-some-length"  # noqa: S105 - of these tests
VARIABLES = dict.fromkeys(("NATS_PASSWORD", "NATS_TOKEN", "DUCTILE_TOKEN", "MY_KEY"), A_SECRET)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "secret").write_text(A_SECRET)
    (tmp_path / "script.yaml").write_text("name: mine\nrules: []\n")
    return tmp_path


def answered(*lines: str) -> Called:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return agentic_here("init")


def silently(*options: str) -> None:
    called = agentic_here("init", "--yes", *options)
    assert called.code == 0, called.err


def loaded(environ: dict[str, str] = VARIABLES) -> tuple[AgentSettings, GatewaySettings]:
    file = Path("agentic.yaml")
    return agent_service.settings.load(file, environ), ductile_gateway.settings.load(file, environ)


def test_who_only_presses_enter_has_what_agentic_dev_runs_with() -> None:
    called = answered("", "", "")
    assert called.code == 0
    assert ["agentic dev" in called.out, "agentic setup" in called.out] == [True, False]
    agent, gateway = loaded()
    assert (agent.model.provider, agent.model.script, agent.nats) == ("scripted", None, AgentSettings().nats)
    assert (gateway.runner, gateway.plugins.folders) == ("plugins", ())


def test_the_file_is_for_its_owner_alone_and_is_never_overwritten() -> None:
    silently()
    assert stat.S_IMODE(Path("agentic.yaml").stat().st_mode) == 0o600
    before = Path("agentic.yaml").read_text()
    refused = agentic_here("init", "--yes", "--model", "anthropic")
    assert (refused.code, "is there already" in refused.err) == (6, True)
    assert Path("agentic.yaml").read_text() == before
    silently("--config", "other.yaml")


def test_every_answer_can_be_an_option() -> None:
    silently(
        *("--nats", "tls://bus:4222,bus2:4222", "--login", "user:me"),
        *("--model", "openai/qwen3:32b", "--model-url", "http://127.0.0.1:11434/v1"),
        *("--tools", "http://127.0.0.1:8080"),
    )
    agent, gateway = loaded()
    assert agent.nats.urls == ("tls://bus:4222", "nats://bus2:4222")
    assert agent.nats == gateway.nats
    assert (agent.nats.user, agent.nats.secrets()) == ("me", (A_SECRET,))
    assert (agent.model.model, agent.model.base_url) == ("qwen3:32b", "http://127.0.0.1:11434/v1")
    assert gateway.runner == "ductile"
    assert gateway.ductile
    assert (gateway.ductile.url, gateway.ductile.secrets()) == ("http://127.0.0.1:8080", (A_SECRET,))
    assert A_SECRET not in Path("agentic.yaml").read_text()


LOGINS: list[tuple[str, dict[str, Any]]] = [
    ("token", {"token": A_SECRET}),
    ("creds:secret", {"creds_file": "secret"}),
    ("nkey:secret", {"nkey_seed_file": "secret"}),
    ("user:on", {"user": "on", "password": A_SECRET}),
    ("none", {}),
]
MODELS: dict[str, tuple[Any, ...]] = {
    "script": ("scripted", None, None),
    "script.yaml": ("scripted", None, Path("script.yaml")),
    "anthropic": ("anthropic", None, None),
    "anthropic/claude-opus-5": ("anthropic", "claude-opus-5", None),
    "openai/gpt-5": ("openai", "gpt-5", None),
}


def test_each_way_to_log_in_and_each_model_is_what_is_told_to_the_server_and_asked() -> None:
    for login, wanted in LOGINS:
        Path("agentic.yaml").unlink(missing_ok=True)
        silently("--nats", "bus:4222", "--login", login)
        nats = loaded()[0].nats
        told = {name: getattr(nats, name) for name in ("creds_file", "nkey_seed_file", "user", "password", "token")}
        shown = {n: getattr(v, "get_secret_value", lambda v=v: str(v))() for n, v in told.items() if v}
        assert shown == wanted, login
    for answer, asked in MODELS.items():
        Path("agentic.yaml").unlink()
        silently("--model", answer)
        model = loaded()[0].model
        assert (model.provider, model.model, model.script) == asked


WRONG = {
    "--nats": ("bus:99999", "http://bus", "b\u00fcs:4222", "embedded"),
    "--login": ("user", "creds:nowhere"),
    "--model": ("gpt-5", "openai", "nowhere.yaml"),
    "--model-url": ("ftp://models",),
    "--tools": ("secret", "http://ductile.example.org", "odd\udcff"),
}
NEEDED = {
    "--nats": "bus:4222",
    "--login": "token",
    "--model": "anthropic",
    "--model-url": "https://models",
    "--tools": "http://127.0.0.1:1",
}


def test_what_cannot_be_meant_is_refused_with_what_can_and_nothing_is_written() -> None:
    for option, value in ((option, value) for option, values in WRONG.items() for value in values):
        called = agentic_here("init", "--yes", *(part for pair in (NEEDED | {option: value}).items() for part in pair))
        meant = {"embedded": "--login"}.get(value, option)
        assert (called.code, meant in called.err) == (2, True), called
        assert not Path("agentic.yaml").exists()
    left = answered("http://bus")  # is refused, and no other answer comes
    assert (left.code, "answer `embedded`" in left.err, Path("agentic.yaml").exists()) == (130, True, False)


COMMENTED = re.compile(r"^( *)# ( *[a-z_]+:(?: .*)?)$", re.MULTILINE)


@pytest.mark.parametrize(
    "options", [(), ("--nats", "bus:4222", "--model", "openai/x", "--model-url", "http://[::1]:1")]
)
def test_what_it_has_in_comments_are_settings_too(options: tuple[str, ...]) -> None:
    silently(*options)
    text = Path("agentic.yaml").read_text().replace("/run/secrets/agentic", "secret")
    Path("agentic.yaml").write_text(COMMENTED.sub(r"\1\2", text))
    assert len(COMMENTED.findall(text)) >= 5
    loaded({"ANTHROPIC_API_KEY": A_SECRET})


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
