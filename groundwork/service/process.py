"""What Linux is asked for by number, because Python has no name for it. Elsewhere nothing of it happens.

The numbers are those of linux/prctl.h and linux/capability.h. A tiny launcher asks to end with us and becomes the
child: between fork and exec a process with threads must not run Python.
"""

import ctypes
import functools
import os
import pwd
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

CAPABILITY_VERSION_3 = 0x20080522
MOST_CAPABILITIES = 64


@functools.cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def take_in_orphans() -> None:
    """Whose parent dies below this process becomes its child, and not that of process 1."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """This process is killed when its parent ends; at once where that has ended already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def hide_memory() -> None:
    """No other process of the user reads memory or environment, where secrets are; no core is written."""
    _prctl(PR_SET_DUMPABLE, 0)


def show_memory() -> None:
    """Undone, as by the start of a program: a process that is hidden may not write its own files in /proc either."""
    _prctl(PR_SET_DUMPABLE, 1)


def gain_nothing() -> None:
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def limit_capabilities() -> None:
    """What root may beyond other users no program gets that this process starts."""
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for number in range(MOST_CAPABILITIES):
        _prctl(PR_CAPBSET_DROP, number)


def drop_capabilities() -> None:
    """What root may beyond other users is given up for good. Raises OSError."""
    if sys.platform != "linux":
        return
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    if libc().capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")


def _prctl(option: int, value: int) -> None:
    # An older kernel does not know some of them: what then is not in force is told by `boundary`.
    if sys.platform == "linux":
        libc().prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


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


def user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
