"""Adds agents to a Ductile and takes them out again.

    find ─▶ propose ─▶ show ─▶ Ductile's own check ─▶ write ─▶ lock ─▶ check again, or take it all back

One entry changes in the files of others: `include` names our folder. A file that was changed since it was written is
neither overwritten nor removed.
"""

import difflib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ductile_gateway.calls.artifacts import masked
from ductile_gateway.installation.found import OUR_PLUGINS, DuctileProgram, Found, at, read_yaml
from ductile_gateway.installation.pages import File, Wishes, files_of, rendered, values_of
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.strict import NotYaml, parse
from schemas.values import dataclass

INCLUDED = "agentic/agentic.yaml"
RECORD, CHECKSUMS, TOKENS = "installed.json", ".checksums", "tokens.yaml"
_WAYS_TO_INCLUDE = (
    (r"(?m)^(include:\s*\[)", rf"\1{INCLUDED}, "),
    (r"(?m)^(include:[^\n]*\n(?:[ \t]*(?:#[^\n]*)?\n)*)([ \t]*)- ", rf"\1\2- {INCLUDED}\n\2- "),
    (r"\Z", rf"\n# Made for agents: `agentic ductile remove` takes it out again.\ninclude:\n  - {INCLUDED}\n"),
)


class Record(BaseModel):
    """`files`: each as it was written. `config`: Ductile's main file before; `was_locked`: whether it had checksums."""

    config: str
    was_locked: bool
    files: dict[Path, str] = {}

    def keeps(self, path: Path) -> bool:
        return path in self.files and _text(path) == self.files[path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """`changes`: in order. `kept`: files that were changed since. `lock`: whether Ductile locks them. `values`: for
    templates."""

    found: Found
    changes: Sequence[File]
    kept: Sequence[Path]
    lock: bool = True
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def text(self) -> str:
        return masked("".join(map(_shown, self.changes)), self.values.get("secrets", {}).values())

    def next_steps(self, program: DuctileProgram | None) -> str:
        silent = [
            name
            for name, manifest in sorted(self.found.manifests().items())
            if name not in OUR_PLUGINS and not any("x-output" in command.output_schema for command in manifest.commands)
        ]
        more = {"found": self.found, "program": program, "silent": silent}
        return rendered("next-steps.txt", {"places": None, **self.values, **more})

    def carry_out(self, program: DuctileProgram | None, *, checked: bool = True) -> None:
        """Write, lock and check. Raises Misconfigured, with all taken back, where Ductile would not start."""
        main = self.found.main
        if program and checked and (flaw := program.flaw("check", main)):
            raise Misconfigured(
                f"Ductile itself finds an error in its configuration before anything is changed: {flaw}\n"
                "Mend that first; where it is only that this terminal lacks variables, `--unchecked` goes on"
            )
        locks = {file.parent / CHECKSUMS for file in (self.found.ours / RECORD, *self.found.files)}
        before = [File(path, _text(path), _mode(path)) for path in (*(each.path for each in self.changes), *locks)]
        flaw = "it was interrupted"
        try:
            for file in self.changes:
                _write(file)
            flaw = program.flaw("lock", main) if program and self.lock else ""
            flaw = flaw or (program.flaw("check", main) if program and checked else "")
        finally:
            for file in before if flaw else ():
                _write(file)
        if flaw:
            raise Misconfigured(f"Ductile would not start with it, so it was taken back: {flaw}")


def installation(found: Found, wishes: Wishes) -> Proposal:
    config, noted = _text(found.main) or "", _record(found)
    before = noted or Record(config=config, was_locked=(found.main.parent / CHECKSUMS).exists())
    _check(found, wishes, again=noted is not None)
    tokens, settings = _tokens_file(found, before), wishes.settings.absolute()
    values = values_of(found, wishes, tokens)
    others = {path for path in (settings, values["places"]["people"]) if path.exists() and not before.keeps(path)}
    template = "beside-another.yaml" if settings in others and _has_another(found, settings) else "for-the-agent.yaml"
    values["settings"] = rendered(template, values)
    wanted = [
        *files_of(found.ours, tokens, values),
        *(File(path, f"{values['secrets'][name]}\n", 0o600) for name, path in values["places"].items()),
        File(settings, values["settings"], shown=True),
    ]
    wanted = [file for file in wanted if file.path not in others]
    kept = [file for file in wanted if noted and file.path.exists() and not before.keeps(file.path)]
    if lacking := "\n\n".join(filter(None, (_lacking(file, before) for file in kept))):
        raise Misconfigured(
            "Nothing was changed: what you asked for belongs into what you have changed since it was put there. Add "
            "these lines, each in its place, and give the command again.\n\n"
            + masked(lacking, values["secrets"].values())
        )
    files = [file for file in wanted if file not in kept]
    written = before.files | {file.path: file.text or "" for file in files}
    values["settings_shown"] = settings in others
    note = File(found.ours / RECORD, before.model_copy(update={"files": written}).model_dump_json(indent=1), 0o600)
    changes = [note, *files, File(found.main, _with_include(config), _mode(found.main), shown=True)]
    needed = [file for file in changes if _text(file.path) != file.text]
    return Proposal(found=found, changes=needed, kept=[file.path for file in kept], values=values)


def removal(found: Found) -> Proposal:
    before, folder = _record(found), found.main.parent
    if before is None:
        raise Misconfigured(f"nothing was installed in {folder}: there is no {found.ours / RECORD}")
    if stranger := next(_strangers(found, before), None):
        raise Misconfigured(
            f"{found.ours / RECORD} names {stranger}, which no installation writes: it was changed. "
            "Take out by hand what docs/DUCTILE.md names"
        )
    kept = {path for path in before.files if path.exists() and not before.keeps(path)}
    at_agent = {path for path in before.files if not _is_ductiles(found, path)}
    kept |= at_agent if kept & at_agent else set()  # settings that stay name their secrets
    gone = [path for path in before.files if path not in kept] + [found.ours / CHECKSUMS, found.ours / RECORD]
    gone += [] if before.was_locked else [folder / CHECKSUMS]
    config = File(found.main, _without_include(found, before, folder / TOKENS in kept), _mode(found.main), shown=True)
    needed = [file for file in (config, *(File(path, None) for path in gone)) if _text(file.path) != file.text]
    return Proposal(found=found, changes=needed, kept=sorted(kept), lock=before.was_locked)


def _record(found: Found) -> Record | None:
    place = found.ours / RECORD
    try:
        return Record.model_validate_json(place.read_bytes()) if place.exists() else None
    except (OSError, ValidationError):
        told = f"{place} cannot be read: it tells what was installed. Restore it, or take out by hand what"
        raise Misconfigured(f"{told} docs/DUCTILE.md names") from None


def _check(found: Found, wishes: Wishes, *, again: bool) -> None:
    outcomes, taken = wishes.outcomes, next(found.taken(), "")
    flaws = {
        f"{found.ours} is there already: not made by this command, or kept by `remove` because it was changed. Move it "
        f"away, and take {INCLUDED} out of `include`, where it is named": found.ours.exists() and not again,
        "its API is off, by which tools are called: set `api: {enabled: true}` in it first": not found.value(
            "api", "enabled"
        ),
        f"`service.name` is {found.name!a}: a Ductile with a relay is named in small letters, digits and hyphens; "
        "change it first": not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", found.name),
        f"there is no folder {outcomes}, without braces in its name: make it, for Ductile to write in": outcomes
        and (set("{}\n") & set(str(outcomes)) or not outcomes.is_dir()),
        "outcomes are kept by Ductile's own plugin file_handler, which is in none of plugin_roots: copy it there "
        "first, or leave out --outcomes": outcomes and "file_handler" not in found.manifests(),
        f"it has {taken} of its own already, which would be replaced: rename or remove it first": taken,
    }
    if flaw := next((flaw for flaw, is_so in flaws.items() if is_so), None):
        raise Misconfigured(flaw)


def _tokens_file(found: Found, before: Record) -> Path:
    """`ductile config lock` locks the folders that have a tokens.yaml: the main one has to stay among them."""
    beside = found.main.parent / TOKENS
    if beside.exists() and not found.has_tokens and beside not in before.files:
        raise Misconfigured(f"{beside} is there and not in `include`: name it there, or move it away")
    return found.ours / TOKENS if found.has_tokens else beside


def _has_another(found: Found, settings: Path) -> bool:
    """Whether the settings have a Ductile other than this one. Raises Misconfigured where both have one name."""
    gateway = at(read_yaml(settings), "gateway")
    urls = {"": at(gateway, "ductile", "url")}
    urls |= {name: at(each, "url") for name, each in (at(gateway, "ductiles") or {}).items()}
    if urls[""] == found.url or not any(urls.values()):
        return False
    if urls.get(found.name) != found.url and found.name in {*urls, *(at(gateway, "ingress", "peers") or ())}:
        raise Misconfigured(
            f"`service.name` is {found.name!a}, and so is that of another Ductile in {settings}: change it first; the "
            "tools of this one will begin with it"
        )
    return True


def _lacking(file: File, before: Record) -> str:
    known = {line.strip() for line in f"{before.files.get(file.path)}\n{_text(file.path)}".splitlines()}
    lines = [line for line in (file.text or "").splitlines() if file.shown and line.strip() not in known]
    return "\n".join([f"{file.path}:", *lines]) if lines else ""


def _strangers(found: Found, before: Record) -> Iterator[Path]:
    for path, text in before.files.items():
        is_secret = path.resolve().parent.parts[-2:] == (".agentic", "secrets")
        is_settings = text.startswith("# The agent and its gateway beside the Ductile in ")
        if not (_is_ductiles(found, path) or is_secret or is_settings):
            yield path


def _is_ductiles(found: Found, path: Path) -> bool:
    return path.resolve().is_relative_to(found.ours) or path == found.main.parent / TOKENS


def _included(text: str) -> Any:
    try:
        return at(parse(text), "include") or []
    except NotYaml:
        return None


def _with_include(text: str) -> str:
    """The text with our entry first in `include`. Raises Misconfigured where that is not written as a list."""
    before = _included(text)
    if INCLUDED in before:
        return text
    for pattern, put in _WAYS_TO_INCLUDE:
        edited = re.sub(pattern, put, text, count=1)
        if isinstance(before, list) and _included(edited) == [INCLUDED, *before]:
            return edited
    raise Misconfigured(f"`include` is not written as a list that can be added to: put {INCLUDED} in it yourself")


def _without_include(found: Found, before: Record, has_tokens: bool) -> str:
    """Ductile's main file without our entry. `has_tokens`: tokens.yaml stays, and takes its place."""
    text, name = _text(found.main) or "", re.escape(INCLUDED)
    if has_tokens:
        return text.replace(INCLUDED, TOKENS, 1)
    if text == _with_include(before.config):
        return before.config
    return re.sub(rf"(?m)^[ \t]*- {name}[^\n]*\n|{name}(, *)?", "", text, count=1)


def _text(path: Path) -> str | None:
    return path.read_bytes().decode(errors="replace") if path.exists() else None


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777 if path.exists() else 0o600


def _shown(file: File) -> str:
    before = _text(file.path)
    if not file.shown:
        return f"{'new' if before is None else 'changed' if file.text else 'taken away'}: {file.path}\n"
    old, new = ((text or "").splitlines(keepends=True) for text in (before, file.text))
    around = 0 if before and file.path.name == "config.yaml" else 3  # a secret may stand beside it
    lines = difflib.unified_diff(old, new, str(file.path) if before else "/dev/null", str(file.path), n=around)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _write(file: File) -> None:
    path = file.path.resolve()
    if file.text is None:
        path.unlink(missing_ok=True)
        if path.suffix == ".py":
            shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
        for folder in path.parents:
            if not {"agentic", ".agentic"} & set(folder.parts[-3:]) or not folder.is_dir() or any(folder.iterdir()):
                return
            folder.rmdir()
        return
    for folder in reversed([each for each in path.parents if not each.exists()]):
        folder.mkdir(mode=0o700 if ".agentic" in folder.parts else 0o755)
        store_folder.left_to_owner(folder)
    owner = path.stat() if path.exists() else path.parent.stat()
    store_folder.write(path, file.text)
    path.chmod(file.mode)
    if os.geteuid() == 0:
        os.chown(path, owner.st_uid, owner.st_gid)
