"""A service as a process: start, Ctrl-C, process lock, private files, hidden memory, users of callers, YAML bombs."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from groundwork.http import os_user
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured, TryAgain, in_time
from groundwork.service.process import user_name
from groundwork.service.serving import address, listening
from groundwork.service.store_folder import AlreadyRunning, process_lock
from groundwork.service.strict import NotYaml, parse

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


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "::1"])
def test_a_caller_on_this_machine_is_its_user_and_one_that_has_gone_or_only_listens_is_nobody(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        service, other = (stack.enter_context(socket.create_server((host, 0), family=family)) for _ in range(2))
        caller = stack.enter_context(closing(socket.create_connection((host, service.getsockname()[1]))))
        accepted, peer = service.accept()
        stack.enter_context(closing(accepted))
        scope = {"client": peer[:2], "server": accepted.getsockname()[:2]}
        assert os_user(scope) == user_name(os.getuid())
        assert os_user(scope | {"client": other.getsockname()[:2]}) == ""
        caller.close()
        assert os_user(scope) == ""


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
