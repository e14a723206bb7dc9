"""`python -m tests.fuzz SECONDS` gives every target its share of the time and exits with 1 after a finding."""

import subprocess
import sys

from tests.fuzz.targets import TARGETS


def main(seconds: str = "600") -> int:
    share = max(1, int(seconds) // len(TARGETS))
    found = [target for target in TARGETS if not _holds(target, share)]
    sys.stdout.write(f"found something in: {', '.join(found)}; see tests/fuzz/seeds\n" if found else "nothing found\n")
    return 1 if found else 0


def _holds(target: str, seconds: int) -> bool:
    command = [sys.executable, "-m", "tests.fuzz.drive", target, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    tried = next((line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line), "?")
    held = done.returncode == 0
    said = "nothing found" if held else f"found something\n{done.stdout[-2000:]}\n{done.stderr[-1000:]}"
    sys.stdout.write(f"{target}: {tried} inputs in {seconds} s, {said}\n")
    sys.stdout.flush()
    return held


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
