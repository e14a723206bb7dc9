"""Adds agents to a Ductile and takes them out again.

    read ─▶ plan ─▶ show ─▶ Ductile's own check ─▶ write ─▶ lock ─▶ check again, or roll back

Of the operator's files only `include` changes. A file that was changed since it was installed is neither overwritten
nor removed.
"""

import difflib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ductile_gateway.installation.configuration import OUR_PLUGINS, DuctileConfig, error_of, read_yaml, value_at
from ductile_gateway.installation.rendering import Change, Options, ductile_files, render, template_values
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import is_address, masked
from groundwork.service.strict import NotYaml, parse
from schemas.values import dataclass

INCLUDED = "agentic/agentic.yaml"
RECORD, CHECKSUMS, TOKENS = "installed.json", ".checksums", "tokens.yaml"
_INCLUDE_EDITS = (
    (r"(?m)^(include:\s*\[)", rf"\1{INCLUDED}, "),
    (r"(?m)^(include:[^\n]*\n(?:[ \t]*(?:#[^\n]*)?\n)*)([ \t]*)- ", rf"\1\2- {INCLUDED}\n\2- "),
    (r"\Z", rf"\n# Made for agents: `agentic ductile remove` takes it out again.\ninclude:\n  - {INCLUDED}\n"),
)


class InstallRecord(BaseModel):
    """`config`: Ductile's main file before. `was_locked`: True if it had checksums. `files`: content as installed."""

    config: str
    was_locked: bool
    files: dict[Path, str] = {}

    def is_unchanged(self, path: Path) -> bool:
        return path in self.files and _text(path) == self.files[path]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """`changes`: in order. `kept`: files that were changed since they were installed. `lock`: True if Ductile locks its
    configuration. `values`: for templates."""

    ductile: DuctileConfig
    changes: Sequence[Change]
    kept: Sequence[Path]
    lock: bool = True
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def text(self) -> str:
        return masked("".join(map(_shown, self.changes)), self.values.get("secrets", {}).values())

    def next_steps(self, program: str | None) -> str:
        silent = [
            name
            for name, manifest in sorted(self.ductile.manifests().items())
            if name not in OUR_PLUGINS and not any("x-output" in command.output_schema for command in manifest.commands)
        ]
        more = {"ductile": self.ductile, "program": program, "silent": silent}
        return render("next-steps.txt", {"places": None, **self.values, **more})

    def apply(self, program: str | None, *, checked: bool = True) -> None:
        """Writes, locks and checks. Rolls back and raises Misconfigured if Ductile would not start."""
        main = self.ductile.main
        if program and checked and (flaw := error_of(program, "check", main)):
            raise Misconfigured(
                f"Ductile itself finds an error in its configuration before anything is changed: {flaw}\n"
                "Mend that first; where it is only that this terminal lacks variables, `--unchecked` goes on"
            )
        locks = {file.parent / CHECKSUMS for file in (self.ductile.agentic_folder / RECORD, *self.ductile.files)}
        before = [Change(path, _text(path), _mode(path)) for path in (*(each.path for each in self.changes), *locks)]
        flaw = "it was interrupted"
        try:
            for file in self.changes:
                _write(file)
            unlocked = error_of(program, "lock", main) if program and self.lock else ""
            flaw = unlocked or (error_of(program, "check", main) if program and checked else "")
        finally:
            for file in before if flaw else ():
                _write(file)
        if flaw:
            raise Misconfigured(f"Ductile would not start with it, so it was taken back: {flaw}")


def plan_install(ductile: DuctileConfig, options: Options) -> ChangePlan:
    config, installed = _text(ductile.main) or "", _record(ductile)
    before = installed or InstallRecord(config=config, was_locked=(ductile.main.parent / CHECKSUMS).exists())
    _check(ductile, options, again=installed is not None)
    tokens, settings = _tokens_file(ductile, before), options.settings.absolute()
    values = template_values(ductile, options, tokens)
    operators = {one for one in (settings, values["places"]["people"]) if one.exists() and not before.is_unchanged(one)}
    is_beside = settings in operators and _has_another(ductile, settings)
    values["settings"] = render("beside-another.yaml" if is_beside else "for-the-agent.yaml", values)
    values["settings_shown"] = settings in operators
    wanted = [
        *ductile_files(ductile.agentic_folder, tokens, values),
        *(Change(path, f"{values['secrets'][name]}\n", 0o600) for name, path in values["places"].items()),
        Change(settings, values["settings"], shown=True),
    ]
    wanted = [file for file in wanted if file.path not in operators]
    kept = [file for file in wanted if installed and file.path.exists() and not before.is_unchanged(file.path)]
    if missing := "\n\n".join(filter(None, (_missing_lines(file, before) for file in kept))):
        raise Misconfigured(
            "Nothing was changed: what you asked for belongs into what you have changed since it was put there. Add "
            "these lines, each in its place, and give the command again.\n\n"
            + masked(missing, values["secrets"].values())
        )
    files = [file for file in wanted if file not in kept]
    written = before.files | {file.path: file.text or "" for file in files}
    record = before.model_copy(update={"files": written}).model_dump_json(indent=1)
    changes = _needed(
        Change(ductile.agentic_folder / RECORD, record, 0o600),
        *files,
        Change(ductile.main, _with_include(config), _mode(ductile.main), shown=True),
    )
    return ChangePlan(ductile=ductile, changes=changes, kept=[file.path for file in kept], values=values)


def plan_removal(ductile: DuctileConfig) -> ChangePlan:
    before, folder = _record(ductile), ductile.main.parent
    if before is None:
        raise Misconfigured(f"nothing was installed in {folder}: there is no {ductile.agentic_folder / RECORD}")
    if unknown := next((path for path, text in before.files.items() if not _is_installed(ductile, path, text)), None):
        raise Misconfigured(
            f"{ductile.agentic_folder / RECORD} names {unknown}, which no installation writes: it was changed. "
            "Take out by hand what docs/DUCTILE.md names"
        )
    kept = {path for path in before.files if path.exists() and not before.is_unchanged(path)}
    at_agent = {path for path in before.files if not _belongs_to_ductile(ductile, path)}
    kept |= at_agent if kept & at_agent else set()  # settings that stay name their secrets
    deleted = [path for path in before.files if path not in kept]
    deleted += [ductile.agentic_folder / CHECKSUMS, ductile.agentic_folder / RECORD]
    deleted += [] if before.was_locked else [folder / CHECKSUMS]
    config = _without_include(ductile, before, has_tokens=folder / TOKENS in kept)
    changes = _needed(
        Change(ductile.main, config, _mode(ductile.main), shown=True), *(Change(path, None) for path in deleted)
    )
    return ChangePlan(ductile=ductile, changes=changes, kept=sorted(kept), lock=before.was_locked)


def _needed(*changes: Change) -> Sequence[Change]:
    return [file for file in changes if _text(file.path) != file.text]


def _record(ductile: DuctileConfig) -> InstallRecord | None:
    place = ductile.agentic_folder / RECORD
    try:
        return InstallRecord.model_validate_json(place.read_bytes()) if place.exists() else None
    except (OSError, ValidationError):
        raise Misconfigured(
            f"{place} cannot be read: it tells what was installed. Restore it, or take out by hand what "
            "docs/DUCTILE.md names"
        ) from None


def _check(ductile: DuctileConfig, options: Options, *, again: bool) -> None:
    folder, outcomes, conflict = ductile.agentic_folder, options.outcomes, next(ductile.conflicts(), "")
    odd = [url for url in (options.agent, options.gateway) if not is_address(url, "http", "https")]
    is_named = re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", ductile.name)
    has_outcomes = not outcomes or (outcomes.is_dir() and not set("{}\n") & set(str(outcomes)))
    rules = {
        f"{odd} is no address such as http://127.0.0.1:8700": not odd,
        f"{folder} is there already: not made by this command, or kept by `remove` because it was changed. Move it "
        f"away, and take {INCLUDED} out of `include`, where it is named": again or not folder.exists(),
        "its API is off, by which tools are called: set `api: {enabled: true}` in it first": ductile.value(
            "api", "enabled"
        ),
        f"`service.name` is {ductile.name!a}: a Ductile with a relay is named in small letters, digits and hyphens; "
        "change it first": is_named,
        f"there is no folder {outcomes}, without braces in its name: make it, for Ductile to write in": has_outcomes,
        "outcomes are kept by Ductile's own plugin file_handler, which is in none of plugin_roots: copy it there "
        "first, or leave out --outcomes": not outcomes or "file_handler" in ductile.manifests(),
        f"it has {conflict} of its own already, which would be replaced: rename or remove it first": not conflict,
    }
    if broken := next((rule for rule, holds in rules.items() if not holds), None):
        raise Misconfigured(broken)


def _tokens_file(ductile: DuctileConfig, before: InstallRecord) -> Path:
    """Path of tokens.yaml. `ductile config lock` locks only folders that have one, so the main folder must keep its
    own."""
    beside = ductile.main.parent / TOKENS
    if beside.exists() and not ductile.has_tokens and beside not in before.files:
        raise Misconfigured(f"{beside} is there and not in `include`: name it there, or move it away")
    return ductile.agentic_folder / TOKENS if ductile.has_tokens else beside


def _has_another(ductile: DuctileConfig, settings: Path) -> bool:
    """True if the settings have another Ductile. Raises Misconfigured if both have the same name."""
    gateway = value_at(read_yaml(settings), "gateway")
    urls = {"": value_at(gateway, "ductile", "url")}
    urls |= {name: value_at(each, "url") for name, each in (value_at(gateway, "ductiles") or {}).items()}
    if urls[""] == ductile.url or not any(urls.values()):
        return False
    names = {*urls, *(value_at(gateway, "ingress", "peers") or ())}
    if urls.get(ductile.name) != ductile.url and ductile.name in names:
        raise Misconfigured(
            f"`service.name` is {ductile.name!a}, and so is that of another Ductile in {settings}: change it first; "
            "the tools of this one will begin with it"
        )
    return True


def _missing_lines(file: Change, before: InstallRecord) -> str:
    known = {line.strip() for line in f"{before.files.get(file.path)}\n{_text(file.path)}".splitlines()}
    lines = [line for line in (file.text or "").splitlines() if file.shown and line.strip() not in known]
    return "\n".join([f"{file.path}:", *lines]) if lines else ""


def _is_installed(ductile: DuctileConfig, path: Path, text: str) -> bool:
    is_secret = path.resolve().parent.parts[-2:] == (".agentic", "secrets")
    is_settings = text.startswith("# The agent and its gateway beside the Ductile in ")
    return is_secret or is_settings or _belongs_to_ductile(ductile, path)


def _belongs_to_ductile(ductile: DuctileConfig, path: Path) -> bool:
    return path.resolve().is_relative_to(ductile.agentic_folder) or path == ductile.main.parent / TOKENS


def _included(text: str) -> Any:
    try:
        return value_at(parse(text), "include") or []
    except NotYaml:
        return None


def _with_include(text: str) -> str:
    """Adds our entry as the first of `include`. Raises Misconfigured if that is not written as a list."""
    before = _included(text)
    if INCLUDED in before:
        return text
    for pattern, put in _INCLUDE_EDITS:
        edited = re.sub(pattern, put, text, count=1)
        if isinstance(before, list) and _included(edited) == [INCLUDED, *before]:
            return edited
    raise Misconfigured(f"`include` is not written as a list that can be added to: put {INCLUDED} in it yourself")


def _without_include(ductile: DuctileConfig, before: InstallRecord, *, has_tokens: bool) -> str:
    """Ductile's main file without our entry. `has_tokens`: tokens.yaml stays and replaces it."""
    text, name = _text(ductile.main) or "", re.escape(INCLUDED)
    if has_tokens:
        return text.replace(INCLUDED, TOKENS, 1)
    if text == _with_include(before.config):
        return before.config
    return re.sub(rf"(?m)^[ \t]*- {name}[^\n]*\n|{name}(, *)?", "", text, count=1)


def _text(path: Path) -> str | None:
    return path.read_bytes().decode(errors="replace") if path.exists() else None


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777 if path.exists() else 0o600


def _shown(file: Change) -> str:
    before = _text(file.path)
    if not file.shown:
        return f"{'new' if before is None else 'changed' if file.text else 'taken away'}: {file.path}\n"
    old, new = ((text or "").splitlines(keepends=True) for text in (before, file.text))
    around = 0 if before and file.path.name == "config.yaml" else 3  # a secret may stand beside it
    lines = difflib.unified_diff(old, new, str(file.path) if before else "/dev/null", str(file.path), n=around)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _write(file: Change) -> None:
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
        store_folder.give_to_owner(folder)
    owner = path.stat() if path.exists() else path.parent.stat()
    store_folder.write(path, file.text)
    path.chmod(file.mode)
    if os.geteuid() == 0:
        os.chown(path, owner.st_uid, owner.st_gid)
