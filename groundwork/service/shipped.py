"""Files that the program brings along for people and for itself: `deploy/…`, `examples/…`.

In a checkout they are the repository's own. A wheel has them in this package, where pyproject.toml puts them.
"""

from pathlib import Path

import groundwork


def shipped(*parts: str) -> Path:
    """The file or folder of that path, as the repository has it: `shipped("deploy", "agentic.yaml")`."""
    package = Path(groundwork.__file__).resolve().parent
    in_wheel = package / "shipped"
    return (in_wheel if in_wheel.is_dir() else package.parent).joinpath(*parts)
