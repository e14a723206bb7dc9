"""The markdown form of a plugin's answer (the proposal on plugin loops), read line by line. Pure text, strict.

    ## Plugin Result
    Status: continuation
    Plugin: z3-solver
    Confidence: low

    ## Continuation Request
    Action: multi-step

    ### Task 1
    Action: retrieve
    Query: Values of variable X
    DependsOn: none

A field is `Name: value` on one line, or `Name:` with a fenced block (```) below it. Names are written as here. With the
status `success` or `error`, what follows the first blank line after the fields is the text of the answer, and is not
read. What the fields of a request mean is said by `schemas.continuation`.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any

from schemas.fields import listed
from schemas.values import dataclass

RESULT = "## Plugin Result"
REQUEST = "## Continuation Request"
STATUSES = ("success", "error", "continuation")
HEAD_FIELDS = ("Status", "Plugin", "Confidence")
REQUEST_FIELDS = {"Action": "action", "Query": "query", "Profile": "profile", "Reason": "reason"}
TASK_FIELDS = REQUEST_FIELDS | {"Plugin": "plugin", "Command": "command", "Input": "input", "DependsOn": "depends_on"}

_BEGINS = re.compile(rf"(?:[^\S\n]*\n)*{RESULT}[^\S\n]*(?:\n|\Z)")
_HEADING = re.compile(r"#{1,6}(\s.*)?")
_TASK = re.compile(r"### Task ([1-9][0-9]{0,4})")
_FIELD = re.compile(r"([A-Za-z][A-Za-z_-]{0,31}):(?:\s+(.*))?")
_FENCE = re.compile(r"(`{3,})[^`]*")

Place = tuple[str | int, ...]
"""Where something stands in the JSON form: `("tasks", 2, "query")`."""
_Fields = dict[str, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Form:
    """What stands in the form.

    `text`: what follows the fields of a success or an error. `request`: the continuation in its JSON form, not checked
    yet; `lines`: where its parts stand."""

    status: str
    plugin: str
    confidence: str | None
    text: str = ""
    request: Mapping[str, Any] | None = None
    lines: Mapping[Place, int] = field(default_factory=dict)


def is_form(text: str) -> bool:
    return _BEGINS.match(text) is not None


def form_in(text: str) -> Form:
    """Raises ValueError, which names the lines of the first flaws: `line 7: …; line 9: …`."""
    reading = _Reading(text)
    form = reading.form()
    if reading.flaws:
        raise ValueError(listed([f"line {line}: {flaw}" for line, flaw in sorted(reading.flaws)]))
    return form


class _Reading:
    def __init__(self, text: str) -> None:
        self._lines = [line.rstrip() for line in text.split("\n")]
        self._at = 0
        self._lines_of: dict[Place, int] = {}
        self.flaws: list[tuple[int, str]] = []

    def form(self) -> Form:
        begins = self._skip_blank()
        if not self._takes(RESULT):
            return Form("", "", None)
        head = self._fields(HEAD_FIELDS, ends_at_blank=True)
        status = self._status(begins, head)
        plugin = self._value(begins, head, "Plugin")
        line, confidence = head.get("Confidence", (begins, None))
        self._lines_of["confidence",] = line
        if status != "continuation":
            return Form(status, plugin, confidence, text=self._text(status))
        request = self._request()
        return Form(status, plugin, confidence, request=request, lines=self._lines_of)

    def _status(self, begins: int, head: _Fields) -> str:
        status = self._value(begins, head, "Status")
        if status and status not in STATUSES:
            self._flaw(head["Status"][0], f"Status must be one of {', '.join(STATUSES)}")
        return status

    def _value(self, begins: int, head: _Fields, name: str) -> str:
        if name not in head:
            self._flaw(begins, f"{name} is missing below '{RESULT}'")
        return head.get(name, (0, ""))[1]

    def _text(self, status: str) -> str:
        self._skip_blank()
        if self._line == REQUEST and status in STATUSES:
            self._flaw(self._number, f"a continuation request does not go with Status: {status}")
        return "\n".join(self._lines[self._at :]).rstrip()

    def _request(self) -> dict[str, Any]:
        begins = self._skip_blank()
        if not self._takes(REQUEST):
            return {}
        request: dict[str, Any] = self._object((), begins, REQUEST_FIELDS)
        tasks: list[dict[str, Any]] = []
        while self._line is not None:
            begins = self._number
            self._lines_of.setdefault(("tasks",), begins)
            place = ("tasks", len(tasks))
            task_id = self._task_id()
            tasks.append(task_id | self._object(place, begins, TASK_FIELDS))
        return request | ({"tasks": tasks} if tasks else {})

    def _task_id(self) -> dict[str, Any]:
        found = _TASK.fullmatch(self._line or "")
        if not found:
            self._flaw(self._number, "the heading must be '### Task 1', '### Task 2' and so on")
        self._at += 1
        return {"id": f"task-{found[1]}"} if found else {}

    def _object(self, place: Place, begins: int, names: Mapping[str, str]) -> dict[str, Any]:
        self._lines_of[place] = begins
        found = self._fields(names)
        for name, (line, _) in found.items():
            self._lines_of[*place, names[name]] = line
        return {names[name]: self._meant(name, line, value) for name, (line, value) in found.items()}

    def _meant(self, name: str, line: int, value: str) -> Any:
        if name == "DependsOn" and value != "none":
            return [one.strip() for one in value.split(",")]
        if name == "Input" and value.startswith("{"):
            return self._arguments(line, value)
        return value

    def _arguments(self, line: int, value: str) -> Any:
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
            self._flaw(line, f"Input begins as a JSON object and is none: {why}")
            return value

    def _fields(self, names: Collection[str], *, ends_at_blank: bool = False) -> _Fields:
        self._skip_blank()
        found: _Fields = {}
        while self._line is not None and not _HEADING.fullmatch(self._line):
            if not self._line and ends_at_blank:
                break
            if self._line:
                self._field(names, found)
            else:
                self._at += 1
        return found

    def _field(self, names: Collection[str], found: _Fields) -> None:
        number, matched = self._number, _FIELD.fullmatch(self._line or "")
        self._at += 1
        if not matched:
            self._flaw(number, "neither a field ('Name: value') nor a heading of this form")
            return
        name, value = matched[1], matched[2] or self._block(number)
        if name not in names:
            self._flaw(number, f"{name} is not one of the fields that may stand here: {', '.join(names)}")
        elif name in found:
            self._flaw(number, f"{name} stands on line {found[name][0]} already")
        elif not value.strip():
            self._flaw(number, f"{name} has no value")
        else:
            found[name] = (number, value)

    def _block(self, number: int) -> str:
        fence = _FENCE.fullmatch(self._line or "")
        if not fence:
            return ""
        begins = self._at = self._at + 1
        while self._line is not None and self._line != fence[1]:
            self._at += 1
        if self._line is None:
            self._flaw(number + 1, f"the block that begins here is not closed by {fence[1]}")
        self._at += 1
        return "\n".join(self._lines[begins : self._at - 1])

    def _takes(self, heading: str) -> bool:
        if self._line != heading:
            self._flaw(self._number, f"'{heading}' must stand here")
            return False
        self._at += 1
        return True

    def _skip_blank(self) -> int:
        while self._line == "":
            self._at += 1
        return self._number

    def _flaw(self, number: int, flaw: str) -> None:
        self.flaws.append((number, flaw))

    @property
    def _line(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    @property
    def _number(self) -> int:
        return self._at + 1
