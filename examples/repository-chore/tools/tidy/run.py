#!/usr/bin/env python3
"""Finds and fixes untidy text files below the configured folder (Ductile plugin protocol v2)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentic_tool import Call, Failure, serve

MOST_BYTES = 1024 * 1024
SHOWN = 50


def tidy(text: str) -> str:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    return "\n".join(lines).rstrip("\n") + "\n" if text.strip() else ""


def files(folder: Path) -> Iterator[tuple[str, Path, str]]:
    """Yields name, path and content of each text file in order, without hidden files, links and large files."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_symlink() or not path.is_file() or any(part.startswith(".") for part in name.parts):
            continue
        content = path.read_bytes()
        if len(content) <= MOST_BYTES and b"\0" not in content:
            try:
                yield str(name), path, content.decode()
            except UnicodeDecodeError:  # not a text in UTF-8: not ours to change
                continue


def find(call: Call) -> dict[str, Any]:
    all_files = list(files(folder_of(call)))
    untidy = [name for name, _, text in all_files if tidy(text) != text]
    told = "\n".join(f"{name} is not tidy" for name in untidy[:SHOWN]) or "Nothing is left to do."
    result = f"{len(all_files)} files were looked at.\n{told}"
    return {"result": result, "output": {"left": len(untidy)}}


def mend(call: Call) -> str:
    wanted = call.arguments["file"]
    for name, path, text in files(folder_of(call)):
        if wanted == name or (wanted == "first" and tidy(text) != text):
            path.write_bytes(tidy(text).encode())
            return f"Mended {name}."
    raise Failure(f"there is no text file {wanted}: take one of the list that `find` gives", "not_found")


def folder_of(call: Call) -> Path:
    folder = Path(call.config["folder"])
    if not folder.is_dir():
        raise Failure(f"{folder} is no folder: name the repository in the configuration of the tool", "configuration")
    return folder


if __name__ == "__main__":
    serve(find=find, mend=mend)
