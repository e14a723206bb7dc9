"""A service as a process: start, Ctrl-C, process lock, private files, hidden memory, YAML bombs; and its
log: one clean line per record, whatever is logged, and no secret in it, however it got there."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured, TryAgain, in_time
from groundwork.service.json_log import set_up
from groundwork.service.serving import address, listening
from groundwork.service.store_folder import AlreadyRunning, process_lock
from groundwork.service.strict import NotYaml, parse
from tests.kit.logs import logging_kept

PROJECT = Path(__file__).parents[2]
NOBODY = 65534

INTERRUPTED = "__import__('os').kill(__import__('os').getpid(), 2); raise SystemExit('goes on')\n"
BEGUN = """
import sys
from groundwork.service import program

sys.path.append(sys.argv[1])
program.run("begun:main", "")
"""
HOLD = """
import sys
from pathlib import Path
from groundwork.service.store_folder import process_lock
with process_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
LOOK = f"""
import ctypes, os, sys
from groundwork.service import process
os.setgid({NOBODY}); os.setuid({NOBODY})
ctypes.CDLL(None).prctl(4, 1)  # as after the start of a program
sys.argv[1:] and process.hide_memory()
print(os.stat("/proc/self/environ").st_uid)
"""


def python(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("module", "code"),
    [(INTERRUPTED, -signal.SIGINT), (f"def main(): {INTERRUPTED}", 130)],
    ids=["while its modules are loaded", "before it has anything to say"],
)
def test_ctrl_c_ends_a_command_without_a_traceback(module: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "begun.py").write_text(module)
    done = python(BEGUN, str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_second_process_learns_who_holds_the_folder_which_kill_9_frees(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyRunning, match=str(tmp_path / "process.lock")) as caught:
            process_lock(tmp_path).__enter__()
        assert f"Stop process {holder.pid}" in str(caught.value)
        holder.kill()
    (tmp_path / "process.lock").write_text("a longer text than any pid\n")
    with process_lock(tmp_path):
        assert (tmp_path / "process.lock").read_text() == f"{os.getpid()}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes into folders of others")
@pytest.mark.parametrize("write", [store_folder.write, store_folder.create])
def test_what_root_writes_into_the_folder_of_a_service_is_the_services(
    write: Callable[[Path, str], None], tmp_path: Path
) -> None:
    os.chown(tmp_path, 12345, 12346)
    write(tmp_path / "keys", "a secret")
    found = (tmp_path / "keys").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12345, 12346, 0o600)


@pytest.mark.attack(92)
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="looks into /proc, and becomes somebody else")
@pytest.mark.parametrize(("arguments", "owner"), [([], NOBODY), (["hidden"], 0)])
def test_the_environment_of_a_service_belongs_to_nobody_of_its_user(arguments: list[str], owner: int) -> None:
    assert int(python(LOOK, *arguments).stdout) == owner


async def test_who_cannot_listen_is_told_what_to_change() -> None:
    async with listening("::1", 0, who="agent") as listener:
        port = listener.getsockname()[1]
        assert address(listener) == f"http://[::1]:{port}"
        for host, told in (("::1", "is another agent running there"), ("192.0.2.1", "set another `host` or `port`")):
            with pytest.raises(Misconfigured, match=told):
                await listening(host, port, who="agent").__aenter__()


LEVELS = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9) if n else 'x'}]\n" for n in range(9))
MERGED = LEVELS.replace("[x]", "{a: 1}").replace("[", "{<<: [").replace("]\n", "]}\n")


@pytest.mark.attack
@pytest.mark.parametrize("bomb", [LEVELS, MERGED, LEVELS + "? *l8\n: x\n"], ids=["lists", "merges", "key"])
def test_aliases_that_come_to_millions_of_values_are_refused_at_once(bomb: str) -> None:
    with pytest.raises(NotYaml):
        parse(bomb)


async def test_a_timeout_of_something_else_is_not_told_as_that_of_a_question() -> None:
    with pytest.raises(TryAgain, match="the bus did not answer within 0 s"):
        async with in_time("the bus", 0):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError):
        async with in_time("the bus", 60):
            raise TimeoutError


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
