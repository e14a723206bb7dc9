"""`agentic keys` lists keys without their secrets, adds newer ones and retires older ones."""

import json
from pathlib import Path

import pytest

from groundwork.service.errors import Exit
from groundwork.service.keys import KeyRing, read
from tests.cli.invoke import Called, agentic_here


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "agentic.yaml"
    file.write_text(json.dumps({"agent": {"store": str(tmp_path / "store")}}))
    return file


def called(config: Path, *arguments: str) -> Called:
    return agentic_here("keys", *arguments, "--config", config, COLUMNS="200")


def test_they_are_listed_without_secrets_followed_by_newer_ones_and_given_up_and_a_dry_run_changes_none(
    config: Path, tmp_path: Path
) -> None:
    file = tmp_path / "store.keys"
    (before,) = KeyRing.open(file).keys
    shown = called(config, "list").out
    assert (before.id in shown, before.secret.hex() in shown) == (True, False)
    refused = called(config, "retire", before.id)
    assert (refused.code, "agentic keys rotate" in refused.err) == (Exit.MISCONFIGURED, True)
    told = called(config, "rotate", "--json").document
    assert (told["keys"][1]["id"], told["keys"][0]["endorsed_by"]["id"]) == (before.id, before.id)
    kept = read(file)
    for dry in (("rotate",), ("retire", before.id)):
        assert (called(config, *dry, "--dry-run").code, read(file)) == (Exit.OK, kept)
    assert called(config, "retire", before.id).code == Exit.OK
    assert before.id not in [key.id for key in read(file)]


def test_before_the_first_start_there_are_none_and_none_are_made(config: Path, tmp_path: Path) -> None:
    refused = called(config, "list")
    assert (refused.code, "when it starts" in refused.err) == (Exit.MISCONFIGURED, True)
    assert not (tmp_path / "store.keys").exists()
