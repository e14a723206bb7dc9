"""Linux system calls that Python does not wrap. They do nothing on other systems.

The numbers are those of linux/prctl.h and linux/capability.h. A launcher asks to end with us and becomes the child:
between fork and exec a process with threads must not run Python.
"""

import ctypes
import functools
import os
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


def _prctl(option: int, value: int) -> None:
    # An older kernel does not know some options: `boundaries` reports those that are not in force.
    if sys.platform == "linux":
        libc().prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


become_subreaper = functools.partial(_prctl, PR_SET_CHILD_SUBREAPER, 1)
"""Makes this process, not process 1, the parent of its orphaned descendants."""
hide_memory = functools.partial(_prctl, PR_SET_DUMPABLE, 0)
"""Keeps other processes of the user from reading memory and environment, which hold secrets; no core is written."""
show_memory = functools.partial(_prctl, PR_SET_DUMPABLE, 1)
"""Undoes `hide_memory`, as exec does: a hidden process may not write its own files in /proc."""
forbid_new_privileges = functools.partial(_prctl, PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(parent: int) -> None:
    """Kills this process when its parent ends; at once if that has ended already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def drop_bounding_set() -> None:
    """Keeps root's capabilities from programs that this process starts."""
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for number in range(MOST_CAPABILITIES):
        _prctl(PR_CAPBSET_DROP, number)


def drop_capabilities() -> None:
    """Gives up root's capabilities for good. Raises OSError."""
    if sys.platform != "linux":
        return
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    if libc().capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")


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
