"""Linux system calls that Python does not wrap. They do nothing on other systems.

The numbers are those of linux/prctl.h. A launcher asks to end with us and becomes the child:
between fork and exec a process with threads must not run Python.
"""

import ctypes
import functools
import os
import sys

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36


@functools.cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    # An older kernel does not know some options: `boundaries` reports those that are not in force.
    if sys.platform == "linux":
        libc().prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


become_subreaper = functools.partial(prctl, PR_SET_CHILD_SUBREAPER, 1)
"""Makes this process, not process 1, the parent of its orphaned descendants."""
hide_memory = functools.partial(prctl, PR_SET_DUMPABLE, 0)
"""Keeps other processes of the user from reading memory and environment, which hold secrets; no core is written."""
show_memory = functools.partial(prctl, PR_SET_DUMPABLE, 1)
"""Undoes `hide_memory`, as exec does: a hidden process may not write its own files in /proc."""


# 1 is PR_SET_PDEATHSIG; the parent may have ended before that call.
_BECOME_CHILD = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def ending_with_us(command: list[str]) -> list[str]:
    """Command that becomes `command`, an absolute path with arguments, and is terminated when we end."""
    if sys.platform != "linux":
        return command
    return [sys.executable, "-I", "-S", "-c", _BECOME_CHILD, str(os.getpid()), *command]
