"""What of the project is installed here: its version, its commands, and the files that come with it."""

import os
import re
import shlex
import shutil
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import groundwork

DISTRIBUTION = "agentic-loop-nats"
ALL = "all"
_OF_AN_EXTRA = re.compile(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]")


@cache
def installed_version() -> str:
    """0.0.0 in a checkout that is not installed: a NATS micro service needs a number."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0.0.0"


def extra_with(package: str) -> str:
    """The extra of ours that brings it along; empty where none does."""
    try:
        found = (_OF_AN_EXTRA.match(line) for line in requires(DISTRIBUTION) or ())
    except PackageNotFoundError:
        return ""
    return next((one[2] for one in found if one and one[1] == package and one[2] != ALL), "")


def invocation(name: str, module: str) -> str:
    """How the command can be called from here, for examples to copy: by its name, its script, or its module."""
    beside = Path(sys.executable).with_name(name)
    if shutil.which(name):
        return name
    if beside.is_file():
        return shlex.quote(os.path.relpath(beside))
    return f"{shlex.quote(sys.executable)} -m {module}"


def shipped(*parts: str) -> Path:
    """The file or folder of that path, as the repository has it: `shipped("deploy", "agentic.yaml")`."""
    package = Path(groundwork.__file__).resolve().parent
    in_wheel = package / "shipped"
    return (in_wheel if in_wheel.is_dir() else package.parent).joinpath(*parts)
