"""The program `ductile`, which checks and locks a configuration after it was changed."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ductile_gateway.installation.found import Generation
from groundwork.service.errors import Misconfigured

WITHIN_S = 60.0
_LONGEST_SAYING = 2000


@dataclass(frozen=True, slots=True)
class DuctileProgram:
    """`flaw` and `lock` raise Misconfigured where it cannot be run."""

    program: str

    def generation(self) -> Generation:
        """By whether it has a vault."""
        said = self._run("vault", "--help")[1]
        return "m" if "Unknown command" in said else "n"

    def flaw(self, main: Path) -> str:
        """What it finds wrong with the configuration; empty where it is valid."""
        code, said = self._run("config", "check", "--config", str(main))
        return said[:_LONGEST_SAYING] or f"it ended with {code}" if code else ""

    def lock(self, main: Path) -> None:
        """Make what the files say now what they are to say. Raises Misconfigured where it does not."""
        code, said = self._run("config", "lock", "--config", str(main))
        if code:
            raise Misconfigured(f"`ductile config lock` ended with {code}: {said[:_LONGEST_SAYING]}")

    def _run(self, *words: str) -> tuple[int, str]:
        try:
            done = subprocess.run(  # noqa: S603 - the program that whoever calls us has named or has on its PATH
                [self.program, *words], capture_output=True, text=True, errors="replace", timeout=WITHIN_S, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Misconfigured(
                f"{self.program} cannot be run ({type(error).__name__}): give it with --ductile"
            ) from None
        return done.returncode, (done.stdout + done.stderr).strip()


def program(named: Path | None) -> DuctileProgram | None:
    """The one that is named, or else on the PATH; None where there is none. Raises Misconfigured."""
    if named is None:
        found = shutil.which("ductile")
        return DuctileProgram(found) if found else None
    if not os.access(named, os.X_OK):
        raise Misconfigured(f"--ductile {named} is no program that can be run")
    return DuctileProgram(str(named.absolute()))
