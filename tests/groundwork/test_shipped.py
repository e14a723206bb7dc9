"""What the program brings along is found in a checkout; in a wheel `make install-test` finds it."""

import tomllib
from pathlib import Path

from groundwork.service.installed import shipped


def test_in_a_checkout_it_is_the_repository_s_own() -> None:
    assert shipped("deploy", "agentic.yaml").samefile("deploy/agentic.yaml")


def test_all_that_a_wheel_is_made_of_lies_where_it_is_looked_for() -> None:
    wheel = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    packages = {part for part in wheel["only-include"] if Path(part, "__init__.py").is_file()}
    for part in set(wheel["only-include"]) - packages:
        assert wheel["sources"][part] == f"groundwork/shipped/{part}"
    for package in packages:
        assert Path(package, "py.typed").is_file(), package
