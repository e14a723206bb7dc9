"""Ctrl-C in the first tenths of a second of a command."""

import signal
import subprocess
import sys

import pytest

PROBE = """
import os, signal, sys
from groundwork.service import beginning

def interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    sys.exit("goes on")

beginning.run({})
"""


@pytest.mark.parametrize(
    ("load", "code"),
    [("interrupted", -signal.SIGINT), ("lambda: interrupted", 130)],
    ids=["while its modules are loaded", "before it has anything to say"],
)
def test_ctrl_c_ends_a_command_without_a_traceback(load: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE.format(load)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
