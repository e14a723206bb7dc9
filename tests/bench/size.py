"""`make size`: lines, files and modules per room, and the largest files. It judges nothing."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent_service", "ductile_gateway", "groundwork", "schemas")
LARGEST = 12


def main() -> None:
    write = sys.stdout.write
    write(f"{'room':44}{'lines':>8}{'files':>7}{'modules':>9}\n")
    for package in (*PACKAGES, "agentic_client", "tests"):
        for room in _rooms(ROOT / package):
            here = [file for file in room.glob("*.py") if file.name != "__init__.py"]
            files = list(room.rglob("*.py"))
            write(f"{room.relative_to(ROOT)!s:44}{_lines(files):>8,}{len(files):>7}{len(here):>9}\n")
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
