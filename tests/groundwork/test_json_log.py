"""The log: one clean line per record, whatever is logged; no secret in it, however it got there."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from groundwork.service.json_log import set_up
from tests.kit.logs import logging_kept

SECRET = 'tok"en\\ü-4711'  # noqa: S105 - it opens nothing
log = logging.getLogger("service.part")

Read = Callable[[], str]


@pytest.fixture
def read(capsys: pytest.CaptureFixture[str]) -> Iterator[Read]:
    """Standard error so far; restores the logging of the test run afterwards."""
    with logging_kept():
        yield lambda: capsys.readouterr().err


def fail(text: str) -> None:
    error = ValueError(text)
    error.__cause__ = KeyError("the cause")
    try:
        raise error
    except ValueError:
        log.exception("it failed")


def fields(read: Read) -> dict[str, Any]:
    text = read()
    assert text.count("\n") == 1
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def test_a_record_is_one_json_line_with_its_extras_as_fields(read: Read) -> None:
    set_up("INFO", "json")
    log.info("step %d is done", 3, extra={"run_id": "run_1", "steps": [1, 2], "cost": 0.5, "more": {"a": None}})
    line = fields(read)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "service.part",
        "msg": "step 3 is done",
        "run_id": "run_1",
        "steps": [1, 2],
        "cost": 0.5,
        "more": {"a": None},
    }


def test_text_for_people_is_one_line_and_an_indented_stack(read: Read) -> None:
    set_up("INFO", "text")
    log.warning("low on %s", "disk", extra={"free": 3, "used": None, "why": "it is full"})
    fail("no such thing")
    first, second, *stack = read().splitlines()
    assert first.endswith('Z WARNING  low on disk free=3 why="it is full" logger=service.part')
    assert second.endswith("ERROR    it failed logger=service.part")
    assert all(line.startswith("    ") for line in stack)
    assert stack[-1] == "    ValueError: no such thing"


@pytest.mark.parametrize("layout", ["json", "text"])
@pytest.mark.parametrize(
    "say",
    [
        lambda: log.info(SECRET),
        lambda: log.info("as argument: %s, %r, %s", SECRET, SECRET, {"nested": [SECRET]}),
        lambda: log.info("as extra", extra={"a": SECRET, "b": {"c": [SECRET, (SECRET,)]}, SECRET: 1, "d": {SECRET: 1}}),
        lambda: log.info("in another type", extra={"a": SECRET.encode(), "b": ValueError(SECRET), "c": {SECRET}}),
        lambda: log.info("in a URL: https://x/?token=%s", quote(SECRET, safe="")),
        lambda: log.info("in JSON: %s", json.dumps({"token": SECRET})),
        lambda: log.info("too few arguments: %s %s", SECRET),  # noqa: PLE1206 - the mistake is the case
        lambda: log.info("wrong argument: %d", SECRET),
        lambda: log.info("deep", extra={"a": [[[[[[[[[[SECRET]]]]]]]]]]}),
        lambda: logging.getLogger(SECRET).info("as logger"),
        lambda: fail(f"in an exception: {SECRET}"),
    ],
)
def test_a_secret_never_appears_in_any_form(read: Read, say: Callable[[], None], layout: Any) -> None:
    set_up("INFO", layout, redact=[SECRET])
    say()
    text = read()
    assert text.count("service.part") == 1 or "as logger" in text
    assert "4711" not in text


@pytest.mark.parametrize("layout", ["json", "text"])
def test_control_and_hidden_characters_are_visible_and_forge_no_line(read: Read, layout: Any) -> None:
    set_up("INFO", layout)
    log.info(
        "red \x1b[31m\nERROR forged \x9b\u202e\u2028\udc80 pay\u200bpal", extra={"goal": "a\r\nb", "list": ["\x1b"]}
    )
    line = read()
    assert line.count("\n") == 1
    assert not set(line[:-1]) & set("\x1b\r\n\x9b\u202e\u2028\udc80\u200b")
    shown = json.loads(line)["msg"] if layout == "json" else line
    assert r"red \x1b[31m\nERROR forged \x9b\u202e\u2028\udc80 pay\u200bpal" in shown


@pytest.mark.parametrize("layout", ["json", "text"])
def test_what_cannot_be_shown_stops_nothing(read: Read, layout: Any) -> None:
    class Unshowable:
        def __str__(self) -> str:
            raise RuntimeError

    loop: list[Any] = []
    loop.append(loop)
    set_up("INFO", layout)
    log.info("odd", extra={"a": Unshowable(), "b": float("nan"), "c": loop, "d": object(), "e": 2**70})
    log.info(Unshowable())
    odd, unshowable = read().splitlines()
    assert "odd" in odd
    assert "does not fit its arguments" in unshowable
