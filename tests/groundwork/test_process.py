"""What a process is kept from by the kernel: for its secrets, and for what is run on behalf of others."""

import subprocess
import sys

import pytest

NOBODY = 65534
LOOK = """
import ctypes, os, sys
from groundwork.service import process
os.setgid({nobody}); os.setuid({nobody})
ctypes.CDLL(None).prctl(4, 1)  # as after the start of a program
sys.argv[1:] and process.hide_memory()
print(os.stat("/proc/self/environ").st_uid)
"""


@pytest.mark.attack(92)
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_environment_of_a_service_belongs_to_nobody_of_its_user() -> None:
    assert _owner_of_environment() == NOBODY
    assert _owner_of_environment("hidden") == 0


def _owner_of_environment(*arguments: str) -> int:
    code = LOOK.format(nobody=NOBODY)
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    if "PermissionError" in done.stderr:
        pytest.skip("only root can be somebody else")
    return int(done.stdout)
