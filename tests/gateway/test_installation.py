"""Agents are added to a Ductile and removed again, with a stand-in for its program."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ductile_gateway.installation.configuration import read_config
from ductile_gateway.installation.plan import plan_install, plan_removal
from ductile_gateway.installation.rendering import Options
from groundwork.service.errors import Misconfigured

CONFIG = """\
# mine
include:
  - plugins.yaml   # plugins
service: {name: home}
plugin_roots: [./plugins]
api: {enabled: true, listen: 127.0.0.1:8099, auth: {tokens: [{token: a-secret-of-mine, scopes: ["*"]}]}}
"""


@pytest.fixture
def ductile(tmp_path: Path) -> Path:
    folder = tmp_path / "ductile"
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "plugins.yaml").write_text("plugins: {}\n")
    return folder


def options(ductile: Path, **more: Any) -> Options:
    return Options(settings=ductile.parent / "agent" / "agentic.yaml", **more)


def program(ductile: Path, check: str) -> str:
    """A stand-in for `ductile`, which locks, and runs this for `config check`."""
    stand_in = ductile.parent / "program"
    stand_in.write_text(f'#!/bin/sh\nif [ "$2" = lock ]; then date > {ductile}/.checksums; else {check}; fi\n')
    stand_in.chmod(0o755)
    return str(stand_in)


def files(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_what_was_added_is_taken_out_to_the_byte_and_its_entry_is_the_first_in_any_list_of_includes(
    ductile: Path,
) -> None:
    own, locks = CONFIG.replace("include:\n  - plugins.yaml   # plugins\n", ""), program(ductile, "true")
    (ductile / "more.yaml").write_text("")
    for text in (
        "",
        "include: [plugins.yaml] # why\n",
        "include:\n- plugins.yaml\n# between\n- more.yaml\n",
        "include: # files\n  # first\n\n  - plugins.yaml\n",
        "include: [\n  plugins.yaml, # first\n]\n",
    ):
        config, before = ductile / "config.yaml", yaml.safe_load(text or "{}").get("include", [])
        config.write_text(text + own)
        all_before = files(ductile.parent)
        plan_install(read_config(ductile), options(ductile, webhook=True)).apply(locks)
        assert yaml.safe_load(config.read_text())["include"] == ["agentic/agentic.yaml", *before]
        assert (ductile / "agentic" / "plugins" / "agentic-wake" / "agent.py").is_file()
        assert (ductile / ".checksums").is_file()
        plan_removal(read_config(ductile)).apply(locks)
        assert (files(ductile.parent), (ductile / "agentic").exists()) == (all_before, False)


def test_secrets_are_for_their_owner_alone_in_nothing_that_is_shown_and_not_in_the_environment_of_plugins(
    ductile: Path,
) -> None:
    proposal = plan_install(read_config(ductile), options(ductile, webhook=True))
    added = proposal.text()
    proposal.apply(None)
    values = [file.read_text().strip() for file in (ductile.parent / "agent" / ".agentic" / "secrets").iterdir()]
    holding = [path for path, said in files(ductile.parent).items() if any(value.encode() in said for value in values)]
    assert {file.stat().st_mode & 0o077 for file in holding} == {0}
    assert {file.name for file in holding if file.is_relative_to(ductile)} == {
        *("installed.json", "run.token", "secrets.yaml", "tokens.yaml", "wake.token")
    }
    written = b"".join(files(ductile).values())
    assert not [word for word in (b"environment_vars", b"${") if word in written]
    shown = added + plan_removal(read_config(ductile)).text()
    assert '"plugin:ro"' in shown
    assert not [value for value in (*values, "a-secret-of-mine") if value in shown]


def test_what_somebody_has_changed_since_is_neither_overwritten_nor_removed(ductile: Path) -> None:
    plan_install(read_config(ductile), options(ductile)).apply(None)
    page = ductile / "agentic" / "agentic.yaml"
    page.write_text(f"{page.read_text()}# my own\n")
    assert page in plan_install(read_config(ductile), options(ductile, writes=True)).kept
    plan_removal(read_config(ductile)).apply(None)
    assert page.read_text().endswith("# my own\n")
    assert (ductile / "config.yaml").read_text() == CONFIG
    with pytest.raises(Misconfigured, match="kept by `remove` because it was changed"):
        plan_install(read_config(ductile), options(ductile))


def test_a_record_that_names_files_of_others_removes_none(ductile: Path) -> None:
    plan_install(read_config(ductile), options(ductile)).apply(None)
    other, place = ductile.parent / "other", ductile / "agentic" / "installed.json"
    other.write_text("of somebody else")
    noted = json.loads(place.read_text())
    noted["files"][str(other)] = other.read_text()
    place.write_text(json.dumps(noted))
    with pytest.raises(Misconfigured, match=f"names {other}, which no installation writes"):
        plan_removal(read_config(ductile))


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("[ ! -e {}/agentic ] || {{ echo no relay today; exit 1; }}", "taken back: no relay today"),
        ("echo tampered; exit 1", "before anything is changed: tampered"),
    ],
)
def test_what_ductile_would_not_start_with_is_taken_back_and_what_was_wrong_before_is_not_touched(
    ductile: Path, check: str, told: str
) -> None:
    (ductile / ".checksums").write_text("as it was\n")
    before = files(ductile)
    with pytest.raises(Misconfigured, match=told):
        plan_install(read_config(ductile), options(ductile)).apply(program(ductile, check.format(ductile)))
    assert files(ductile) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"service": {"name": "My Ductile"}}, "service.name"),
        ({"api": {"enabled": False, "auth": {"tokens": [{"token": "x"}]}}}, "its API is off"),
        ({"plugins": {"agentic-wake": {}}}, "a plugin agentic-wake of its own"),
        ({"remote_ingress": {"peers": [{"name": "agentic-gateway"}]}}, "a relay peer agentic-gateway of its own"),
        ({"include": "plugins.yaml"}, "is not written as a list"),
    ],
)
def test_what_would_not_go_together_is_refused_with_what_to_change(
    ductile: Path, change: dict[str, Any], told: str
) -> None:
    (ductile / "config.yaml").write_text(json.dumps(yaml.safe_load(CONFIG) | change))
    with pytest.raises(Misconfigured, match=told):
        plan_install(read_config(ductile), options(ductile))


def test_a_secret_that_cannot_be_one_is_told_and_settings_of_another_kind_are_for_ductile_to_refuse(
    ductile: Path,
) -> None:
    odd = {"plugins": ["echo"], "plugin_roots": 5, "instances": 7, "remote_ingress": {"peers": 5}}
    (ductile / "more.yaml").write_text("plugins: {a: {uses: [b]}}\n")
    for change in (odd, {"include": ["more.yaml"]}):
        (ductile / "config.yaml").write_text(yaml.safe_dump(yaml.safe_load(CONFIG) | change))
        plan_install(read_config(ductile), options(ductile))
    secret = ductile.parent / "agent" / ".agentic" / "secrets" / "home.gateway"
    secret.parent.mkdir(parents=True)
    for content in (b"", b"short", b"\xff" * 40):
        secret.write_bytes(content)
        with pytest.raises(Misconfigured, match=f"{secret} (is empty|is too short|cannot be read)"):
            plan_install(read_config(ductile), options(ductile))


def test_variables_of_the_configuration_are_filled_as_ductile_fills_them(
    ductile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", "127.0.0.1:8099")
    (ductile / "config.yaml").write_text(CONFIG.replace("127.0.0.1:8099", "${PLACE}").replace("home", "is-${HOME_OF}"))
    monkeypatch.setenv("HOME_OF", "ann")
    found = read_config(ductile)
    assert (found.url, found.name) == ("http://127.0.0.1:8099", "is-ann")


def test_with_a_vault_no_secret_is_in_the_files_of_ductile(ductile: Path) -> None:
    config = yaml.safe_load(CONFIG)
    config["api"]["auth"]["tokens"] = [{"secret_ref": "mine", "scopes": ["*"]}]
    (ductile / "config.yaml").write_text(yaml.safe_dump(config))
    plan_install(read_config(ductile), options(ductile)).apply(None)
    assert not list(ductile.glob("agentic/*.token"))
    open_to_accounts = [ductile / "agentic", *(ductile / "agentic" / "plugins").rglob("*")]
    assert {path.stat().st_mode & 0o044 for path in open_to_accounts} == {0o044}
    assert not (ductile / "agentic" / "secrets.yaml").exists()
    assert not (ductile / "tokens.yaml").exists()
    assert "secret_ref: agentic-gateway-token" in (ductile / "agentic" / "agentic.yaml").read_text()
