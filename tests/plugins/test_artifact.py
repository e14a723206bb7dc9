"""The artifact plugin: whatever an artifact holds, all of it can be read and found, and every answer is small."""

import json
import re
from typing import Any

import pytest

from ductile_gateway.calls.results import MAX_OUTPUT_BYTES, MAX_SUMMARY_BYTES
from tests.plugins.asking import SHIPPED, a_request, ask, refused, responded

ARTIFACT = SHIPPED / "artifact"
PATH = "artifacts/fetch-01.txt"

DIARY = "".join(f"Day {day}: {'rain' if day % 10 == 0 else 'sun'} on the peas.\n" for day in range(1, 1001))
ONE_LINE = "".join(f"{number:06d}|" for number in range(150_000))
"""1 MB, in which the figures name their place."""
HOSTILE = {
    "one long line": ONE_LINE,
    "wide characters": "😀" * 30_000,
    "a wide character across the limit": "x" + "é" * 5000,
    "control characters": "\x01\x1b[2J\x7f" * 3000,
    "NUL": "\0" * 9000,
    "lone surrogates": "a\ud800" * 4000,
    "replaced bytes": b"\xff\xfe\x80abc".decode(errors="replace") * 3000,
    "empty lines": "\n" * 9000,
    "lines of one character": "a\n" * 9000,
    "quotes and backslashes": '"\\' * 6000,
    "line ends of all kinds": "a\r\nb\rc\n\r\n" * 2000,
    "separators that end no line": "a\u2028b\x0bc\x0cd\x85e\n" * 2000,
    "what reads as the end": "[this is the end of the artifact]\n" * 400,
    "a long line between short ones": f"short\n{'long ' * 2000}\nshort\n" * 3,
}


def called(command: str, text: str, **arguments: Any) -> dict[str, Any]:
    artifact = {"path": PATH, "content_type": "text/plain", "text": text}
    return ask(ARTIFACT, {"artifact": artifact} | arguments, command=command)


def inside(response: dict[str, Any]) -> str:
    text: str = response["result"]
    return text.partition("\n")[2].rpartition("\n")[0]


def stored(text: str) -> list[str]:
    """The lines of a text as an event can carry them."""
    kept = text.encode(errors="replace").decode().replace("\0", "\ufffd")
    return re.split(r"\r\n|\r|\n", kept)


def test_the_lines_asked_for_are_shown_and_how_to_read_on() -> None:
    response = called("read", DIARY, from_line=300, lines=2)
    assert response["result"] == (
        f"{PATH}, lines 300 to 301 of 1000:\nDay 300: rain on the peas.\nDay 301: sun on the peas.\n"
        "[cut: 699 more lines; read on with from_line 302]"
    )
    assert (response["output"]["more"], response["output"]["next"]) == (True, {"from_line": 302})


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_whatever_an_artifact_holds_what_is_read_is_what_is_there_and_small(text: str) -> None:
    lines, arguments, parts = stored(text), {"lines": 1000}, ""
    for _ in range(4):
        response = called("read", text, **arguments)
        assert len(response["result"].encode()) <= MAX_SUMMARY_BYTES
        assert len(json.dumps(response["output"])) <= MAX_OUTPUT_BYTES
        goes_on = response["output"].get("next", {})
        parts += inside(response) + ("" if "from_char" in goes_on else "\n")
        arguments = {"lines": 1000} | goes_on
        if not goes_on:
            break
    assert len(parts) > 3000
    assert "\n".join([*lines, ""]).startswith(parts)


def test_reading_on_as_told_reads_all_of_it() -> None:
    text = f"first\n{'é' * 4000}\n\n{DIARY[:5000]}\r\n\nlast"
    parts, goes_on = "", {"from_line": 1}
    while goes_on:
        response = called("read", text, **goes_on)
        goes_on = response["output"].get("next", {})
        parts += inside(response) + ("" if "from_char" in goes_on else "\n")
    assert parts == text.replace("\r\n", "\n") + "\n"


def test_matches_are_shown_with_their_numbers_and_the_lines_around_them() -> None:
    response = called("search", DIARY, pattern="RAIN", context_lines=1, from_line=975)
    assert response["result"] == (
        f"100 matches in {PATH}, 1000 lines; from line 975 on:\n"
        "979- Day 979: sun on the peas.\n980: Day 980: rain on the peas.\n981- Day 981: sun on the peas.\n--\n"
        "989- Day 989: sun on the peas.\n990: Day 990: rain on the peas.\n991- Day 991: sun on the peas.\n--\n"
        "999- Day 999: sun on the peas.\n1000: Day 1000: rain on the peas."
    )
    assert response["output"] == {"artifact": PATH, "total_lines": 1000, "matches": 100, "more": False}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("pattern", ["a", "😀", "\ufffd", "long"])
def test_whatever_an_artifact_holds_what_is_found_is_there_and_small(text: str, pattern: str) -> None:
    response = called("search", text, pattern=pattern, context_lines=10)
    assert len(response["result"].encode()) <= MAX_SUMMARY_BYTES
    assert len(json.dumps(response["output"])) <= MAX_OUTPUT_BYTES
    there = sum(line.count(pattern) for line in stored(text))
    assert response["output"]["matches"] == there
    shown = [row for row in response["result"].split("\n")[1:] if not row.startswith("[")]
    assert any(pattern in row for row in shown) is bool(there)


NO_ARTIFACTS: list[Any] = [
    *(None, "", 7, ["artifacts/a.txt"], PATH, "/etc/passwd", "artifacts/../../etc/passwd", "file:///etc/passwd", {}),
    {"path": "/etc/passwd"},
    {"path": "artifacts/a.png", "content_type": "image/png"},
    {"path": "artifacts/a.png", "content_type": "image/png", "base64": "iVBORw0="},
    {"path": "artifacts/a.txt", "text": None},
    {"path": "artifacts/a.txt", "text": ["a"]},
]


@pytest.mark.parametrize("command", ["read", "search"])
def test_what_is_not_the_text_of_an_artifact_is_refused_and_no_file_is_opened(command: str) -> None:
    for artifact in NO_ARTIFACTS:
        error = refused(ask(ARTIFACT, {"artifact": artifact, "pattern": "root"}, command=command))
        assert ("artifact" in error, "root" in error) == (True, False)


READING: list[tuple[dict[str, Any], str]] = [
    *(({"from_line": odd}, "from_line must be a whole number from 1 to 1000") for odd in (0, 1001, 10**30)),
    *(({"from_line": odd}, "from_line") for odd in ("2", 1.5, True, None)),
    ({"from_char": 0}, "from_char"),
    ({"from_line": 2, "from_char": 24}, "from_char must be a whole number from 1 to 23, the last"),
    *(({"lines": odd}, "lines must be a whole number from 1 to 1000") for odd in (0, 1001)),
]
SEARCHING: list[tuple[dict[str, Any], str]] = [
    ({}, "pattern is missing"),
    *(({"pattern": odd}, "pattern must be the text to find") for odd in ("  ", None)),
    *(({"pattern": odd}, "pattern") for odd in (7, "a\nb", "x" * 201)),
    ({"patterns": []}, "pattern is missing"),
    *(({"patterns": odd}, "patterns must be a list of at most 8 texts") for odd in ("x", ["x"] * 9)),
    ({"patterns": ["x", "a\nb"]}, "pattern must be at most"),
    *(({"pattern": "x", "context_lines": odd}, "context_lines") for odd in (-1, 11)),
    ({"pattern": "x", "from_line": 1001}, "from_line"),
]


def test_an_argument_that_cannot_be_used_is_named_with_what_can() -> None:
    for command, cases in (("read", READING), ("search", SEARCHING)):
        for arguments, named in cases:
            response = called(command, DIARY, **arguments)
            assert (named in refused(response), "artifacts" in response) == (True, False), response


def test_what_a_run_with_strangers_reads_of_its_artifacts_is_marked() -> None:
    artifact = {"path": PATH, "content_type": "text/plain", "text": "the page"}
    asked = json.loads(a_request({"artifact": artifact}, command="read", config={}))
    for mark in ({"untrusted": True}, dict[str, bool]()):
        response = responded(ARTIFACT, json.dumps(asked | mark).encode())
        assert {name: value for name, value in response["output"].items() if name == "untrusted"} == mark
