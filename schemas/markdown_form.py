"""Strict parser of the markdown form of a plugin's answer (the proposal on plugin loops; docs/CONTINUATIONS.md).

A field is `Name: value` on one line, or `Name:` with a fenced block (```) below it. Names are case-sensitive. With the
status `success` or `error`, the text after the first blank line is the answer, and is not parsed.
`schemas.continuation` defines the fields of a request.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

RESULT, REQUEST = "## Plugin Result", "## Continuation Request"
STATUSES = ("success", "error", "continuation")
HEAD_FIELDS = {"Status": "status", "Plugin": "plugin", "Confidence": "confidence"}
REQUEST_FIELDS = {"Action": "action", "Query": "query", "Profile": "profile", "Reason": "reason"}
TASK_FIELDS = REQUEST_FIELDS | {"Plugin": "plugin", "Command": "command", "Input": "input", "DependsOn": "depends_on"}

_BEGINS = re.compile(rf"(?:[^\S\n]*\n)*{RESULT}[^\S\n]*(?:\n|\Z)")
_HEADING = re.compile(r"#{1,6}(\s.*)?")
_TASK = re.compile(r"### Task ([1-9][0-9]{0,4})")
_FIELD = re.compile(r"([A-Za-z][A-Za-z_-]{0,31}):(?:\s+(.*))?")
_FENCE = re.compile(r"(`{3,})[^`]*")


def is_form(text: str) -> bool:
    return _BEGINS.match(text) is not None


def read_form(text: str) -> tuple[dict[str, str], str, dict[str, Any] | None]:
    """Fields of the head by their names in JSON; the answer of a success or an error; and the continuation in its JSON
    form, unchecked. Raises ValueError for the first invalid line: `line 7: …`."""
    lines = _LineReader(text)
    lines.heading(RESULT)
    head = lines.fields(HEAD_FIELDS, ends_at_blank=True)
    for name in ("Status", "Plugin"):
        if HEAD_FIELDS[name] not in head:
            lines.refuse(f"{name} is missing below '{RESULT}'")
    if head["status"] not in STATUSES:
        lines.refuse(f"Status must be one of {', '.join(STATUSES)}")
    lines.skip_blank()
    if head["status"] != "continuation":
        if lines.line == REQUEST:
            lines.refuse(f"a continuation request does not go with Status: {head['status']}")
        return head, lines.rest(), None
    lines.heading(REQUEST)
    request, tasks = lines.request(REQUEST_FIELDS), list[dict[str, Any]]()
    while lines.line is not None:
        if not (task := _TASK.fullmatch(lines.line)):
            lines.refuse("the heading must be '### Task 1', '### Task 2' and so on")
        lines.at += 1
        tasks.append({"id": f"task-{task[1]}"} | lines.request(TASK_FIELDS))
    return head, "", request | ({"tasks": tasks} if tasks else {})


class _LineReader:
    """`at`: number of lines read."""

    def __init__(self, text: str) -> None:
        self._lines = [line.rstrip() for line in text.split("\n")]
        self.at = 0

    @property
    def line(self) -> str | None:
        return self._lines[self.at] if self.at < len(self._lines) else None

    def refuse(self, flaw: str) -> NoReturn:
        raise ValueError(f"line {self.at + 1}: {flaw}")

    def skip_blank(self) -> None:
        while self.line == "":
            self.at += 1

    def rest(self) -> str:
        return "\n".join(self._lines[self.at :]).rstrip()

    def heading(self, heading: str) -> None:
        self.skip_blank()
        if self.line != heading:
            self.refuse(f"'{heading}' must stand here")
        self.at += 1

    def request(self, names: Mapping[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = self.fields(names)
        if (before := found.get("depends_on", "none")) != "none":
            found["depends_on"] = [one.strip() for one in before.split(",")]
        if (given := found.get("input", "")).startswith("{"):
            try:
                found["input"] = json.loads(given)
            except (ValueError, RecursionError) as error:
                other = "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
                why = error.msg if isinstance(error, json.JSONDecodeError) else other
                self.refuse(f"the Input above begins as a JSON object and is none: {why}")
        return found

    def fields(self, names: Mapping[str, str], *, ends_at_blank: bool = False) -> dict[str, str]:
        """Fields up to the next heading, by their names in the JSON form."""
        found: dict[str, str] = {}
        self.skip_blank()
        while self.line is not None and not _HEADING.fullmatch(self.line) and (self.line or not ends_at_blank):
            if field := _FIELD.fullmatch(self.line):
                if field[1] not in names:
                    self.refuse(f"{field[1]} is not one of the fields that may stand here: {', '.join(names)}")
                if names[field[1]] in found:
                    self.refuse(f"{field[1]} stands above already")
                if not (value := field[2] or self._block()).strip():
                    self.refuse(f"{field[1]} has no value")
                found[names[field[1]]] = value
            elif self.line:
                self.refuse("neither a field ('Name: value') nor a heading of this form")
            self.at += 1
        return found

    def _block(self) -> str:
        """Reads the fenced block below the current line, if there is one, up to its last line."""
        first = self.at + 2
        if len(self._lines) < first or not (fence := _FENCE.fullmatch(self._lines[first - 1])):
            return ""
        try:
            self.at = self._lines.index(fence[1], first)
        except ValueError:
            self.refuse(f"the block that begins below is not closed by {fence[1]}")
        return "\n".join(self._lines[first : self.at])
