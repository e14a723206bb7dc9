"""Files that come with the program: the repository's own in a checkout, in a wheel where pyproject.toml puts them."""

from pathlib import Path

import groundwork


def shipped(*parts: str) -> Path:
    """The file or folder of that path, as the repository has it: `shipped("deploy", "agentic.yaml")`."""
    package = Path(groundwork.__file__).resolve().parent
    in_wheel = package / "shipped"
    return (in_wheel if in_wheel.is_dir() else package.parent).joinpath(*parts)
