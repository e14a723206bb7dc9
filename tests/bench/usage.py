"""Resource use of a process, from Linux's /proc."""

import os
from contextlib import suppress
from pathlib import Path


def cpu_s(pid: int) -> float:
    """CPU seconds so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _words(task / "children")]


def peak_mb(pid: int) -> float:
    """Peak memory in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


def _words(file: Path) -> list[str]:
    with suppress(OSError):  # a thread that has just ended
        return file.read_text().split()
    return []
