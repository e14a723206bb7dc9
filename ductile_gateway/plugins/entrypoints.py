"""Whether a plugin's program can be started at all, and if not, what to do: for authors of plugins."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from groundwork.service.installed import DISTRIBUTION, extra_with

BEGINS = {".py": "python3", ".sh": "bash", ".js": "node", ".mjs": "node", ".rb": "ruby", ".pl": "perl"}
FIRST_BYTES = 512
LOADED = {*sys.stdlib_module_names, "ductile_gateway", "groundwork"}
PYTHON = re.compile(r"python(3(\.\d+)?)?")


def flaw_of(entrypoint: Path, search: str | None = None) -> str | None:
    """Why it cannot be started, with the mend; None where nothing speaks against it. `search`: as PATH has it."""
    if entrypoint.is_dir():
        return "it is a folder: `entrypoint` has to name the program in it"
    quoted = shlex.quote(str(entrypoint))
    if not entrypoint.is_file() or not os.access(entrypoint, os.X_OK):
        return f"the entrypoint must be an executable file (chmod 755 {quoted})"
    beginning = _beginning(entrypoint)
    if b"\0" in beginning:  # compiled
        return None
    first = _line_1(beginning)
    if not first.startswith("#!"):
        return f"nothing says what runs it: write `#!/usr/bin/env {BEGINS.get(entrypoint.suffix, 'bash')}` as line 1"
    if first.endswith("\r"):
        return f"its lines end as on Windows, so line 1 is not understood (sed -i 's/\\r$//' {quoted})"
    return _missing(first.removeprefix("#!").split(), search)


def lack_of(entrypoint: Path, packages: Collection[str], search: str | None = None) -> str:
    """The packages (by pip's names) that our own Python lacks, with the mend, where line 1 names that Python; else
    empty."""
    if not packages:
        return ""
    python = _python_of(entrypoint, search)
    if not python:
        return ""
    names = " ".join(shlex.quote(name) for name in packages if not _is_here(name))
    if extras := extras_with(packages):
        install = f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"
    else:
        install = f"{shlex.quote(python)} -m pip install {names}"
    return f"{python} does not have {names}: {install}" if names else ""


def is_ours(entrypoint: Path, search: str | None = None) -> bool:
    """Whether our own Python runs it, without options, and no module beside it has the name of one that guards load."""
    beside = {path.stem for path in entrypoint.parent.iterdir()}
    is_plain = " -" not in _line_1(_beginning(entrypoint)) and beside.isdisjoint(LOADED)
    return is_plain and bool(_python_of(entrypoint, search))


def _python_of(entrypoint: Path, search: str | None) -> str:
    first = _line_1(_beginning(entrypoint))
    python = shutil.which(first.removeprefix("#!").split()[-1], path=search) if first.startswith("#!") else None
    is_python = python and PYTHON.fullmatch(Path(python).name) and Path(python).parent == Path(sys.executable).parent
    return python if python and is_python else ""


def extras_with(packages: Collection[str]) -> tuple[str, ...]:
    """The extras of ours that bring all of these packages that are not here; empty where one of them is not ours."""
    extras = [extra_with(name) for name in packages if not _is_here(name)]
    return tuple(dict.fromkeys(extras)) if all(extras) else ()


def _beginning(entrypoint: Path) -> bytes:
    with entrypoint.open("rb") as file:
        return file.read(FIRST_BYTES)


def _line_1(beginning: bytes) -> str:
    return beginning.split(b"\n", 1)[0].decode(errors="replace")


def _is_here(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def _missing(words: list[str], search: str | None) -> str | None:
    if not words:
        return "nothing follows `#!` in line 1: write `#!/usr/bin/env bash`, or what runs it"
    if Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if words and shutil.which(words[0], path=search) is None:
            return f"its line 1 wants {words[0]}, which is not on PATH: install it"
        return None
    return None if os.access(words[0], os.X_OK) else f"its line 1 wants {words[0]}, which is not here: install it"
