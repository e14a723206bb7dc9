"""Loads the statements of a file beside this one. Each begins at `-- name: x` and ends where the next one begins."""

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def load_queries(file: str = "queries.sql") -> dict[str, str]:
    text = (files(__package__) / file).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}
