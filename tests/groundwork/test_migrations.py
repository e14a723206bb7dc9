"""Migrations: scripts run once, in order, wholly or not at all, and an older program leaves a newer file alone."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from groundwork.service.errors import Broken, Misconfigured
from groundwork.sqlite.errors import read_only
from groundwork.sqlite.file import migrate, pending_upgrade


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    folder = tmp_path / "sql"
    folder.mkdir()
    (folder / "0001_runs.sql").write_text("CREATE TABLE run (id TEXT);\nCREATE TABLE entry (id TEXT);\n")
    (folder / "0002_state.sql").write_text(
        "INSERT INTO run VALUES ('a;b');\nALTER TABLE run ADD COLUMN state TEXT; -- the end"
    )
    (folder / "README.md").write_text("not a script")
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def answer(path: Path, question: str) -> list[object]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute(question)]


def test_a_new_file_is_brought_to_the_newest_version_once(path: Path, scripts: Path) -> None:
    for _ in range(2):
        assert migrate(path, scripts) == 2
    assert answer(path, "SELECT id FROM run WHERE state IS NULL") == ["a;b"]
    assert answer(path, "PRAGMA user_version") == [2]


@pytest.mark.parametrize("name", ["a b?c#d%41.db", "caf\udce9.db"], ids=["signs", "latin-1"])
def test_a_file_of_any_name_is_opened_for_reading(path: Path, scripts: Path, name: str) -> None:
    migrate(path, scripts)
    with contextlib.closing(read_only(path.rename(path.parent / name))) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_what_an_older_program_wrote_is_said_beforehand_and_when_it_is_done(
    path: Path, scripts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert pending_upgrade(path, scripts) == ""
    assert not path.exists()
    migrate(path, scripts)
    assert (pending_upgrade(path, scripts), caplog.messages) == ("", [])
    (scripts / "0003_more.sql").write_text("INSERT INTO run VALUES ('third', 'new');")
    assert (
        pending_upgrade(path, scripts)
        == f"{path} has schema version 2: the next start makes 3 of it, which older programs refuse"
    )
    assert answer(path, "PRAGMA user_version") == [2]
    migrate(path, scripts)
    assert "brought up to date" in caplog.text
    (scripts / "0003_more.sql").unlink()
    before = path.read_bytes()
    for refused in (pending_upgrade, migrate):
        with pytest.raises(Misconfigured, match=r"version 3, .* up to 2: start the newer program that wrote it"):
            refused(path, scripts)
    assert path.read_bytes() == before


def test_a_failing_script_leaves_nothing_behind_and_keeps_those_before_it(path: Path, scripts: Path) -> None:
    wrong = scripts / "0003_wrong.sql"
    wrong.write_text("INSERT INTO run VALUES ('half', 'x');\nINSERT INTO nowhere VALUES (1);")
    with pytest.raises(Broken, match="nowhere"):
        migrate(path, scripts)
    assert answer(path, "SELECT id FROM run") == ["a;b"]
    assert answer(path, "PRAGMA user_version") == [2]
    wrong.write_text("INSERT INTO run VALUES ('whole', 'x');")
    assert migrate(path, scripts) == 3
    assert answer(path, "SELECT id FROM run") == ["a;b", "whole"]
