"""Children that end with us, also when we are killed: the kernel sends them SIGTERM. On Linux; elsewhere they stay.

A tiny launcher asks for it and becomes the child: between fork and exec a process with threads must not run Python.
"""

import os
import sys

# 1 is PR_SET_PDEATHSIG; the question is whether the parent lived until then.
_BECOME_CHILD = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def tied_to_us(command: list[str]) -> list[str]:
    """The command that becomes `command`, whose first word is the path of a program."""
    if sys.platform != "linux":
        return command
    return [sys.executable, "-I", "-S", "-c", _BECOME_CHILD, str(os.getpid()), *command]
