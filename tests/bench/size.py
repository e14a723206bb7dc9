"""`make size`: lines, files and modules per room beside its budget, and the largest files. It judges nothing."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent_service", "ductile_gateway", "groundwork", "schemas")
LARGEST = 12
BUDGETS = {
    "agent_service": 24_800,
    "agent_service/core": 3_600,
    "agent_service/run": 1_600,
    "agent_service/admission": 900,
    "agent_service/store": 1_300,
    "agent_service/history": 1_600,
    "agent_service/views": 1_600,
    "agent_service/archive": 2_000,
    "agent_service/models": 2_600,
    "agent_service/bus": 1_500,
    "agent_service/api": 2_900,
    "agent_service/cli": 3_000,
    "agent_service/workbench": 1_600,
    "ductile_gateway": 12_000,
    "groundwork": 5_300,
    "groundwork/nats": 2_300,
    "groundwork/sqlite": 700,
    "groundwork/service": 1_100,
    "groundwork/telemetry": 400,
    "schemas": 2_400,
    "agentic_client": 1_000,
}
"""Budgets in lines, with nested rooms. For tests: one line per line of the packages."""


def main() -> None:
    write = sys.stdout.write
    write(f"{'room':44}{'lines':>8}{'files':>7}{'modules':>9}{'budget':>9}\n")
    for package in (*PACKAGES, "agentic_client", "tests"):
        for room in _rooms(ROOT / package):
            name = str(room.relative_to(ROOT))
            budget = BUDGETS.get(name)
            here = [file for file in room.glob("*.py") if file.name != "__init__.py"]
            files = list(room.rglob("*.py"))
            write(f"{name:44}{_lines(files):>8,}{len(files):>7}{len(here):>9}{f'{budget:,}' if budget else '':>9}\n")
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    write(f"{'the four packages':44}{_lines(files):>8,}{len(files):>7}\n\nlargest files\n")
    tests = (ROOT / "tests").rglob("*.py")
    for lines, file in sorted(((_lines([file]), file) for file in (*files, *tests)), reverse=True)[:LARGEST]:
        write(f"{lines:>8,}  {file.relative_to(ROOT)}\n")


def _rooms(package: Path) -> Iterator[Path]:
    """The package and its folders of modules; of the tests only the top level."""
    yield package
    deep = "*" if package.name == "tests" else "**/"
    yield from sorted(room for room in package.glob(deep) if room != package and any(room.glob("*.py")))


def _lines(files: Iterable[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


if __name__ == "__main__":
    main()
