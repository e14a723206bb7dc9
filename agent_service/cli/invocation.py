"""How the command can be called from where it runs now, for examples that can be copied."""

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "agentic"


def invocation() -> str:
    """`agentic` where it is on the PATH; else the script beside this Python, or the module."""
    beside = Path(sys.executable).with_name(NAME)
    if shutil.which(NAME):
        return NAME
    if beside.is_file():
        return shlex.quote(os.path.relpath(beside))
    return f"{shlex.quote(sys.executable)} -m agent_service"
