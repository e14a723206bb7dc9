"""The README as a package index shows it: what it links to lies in the repository, and not beside it there."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(!?\[[^\]]*\])\((?!\w+:|#)")


class LongDescription(MetadataHookInterface):
    """Found by hatchling in this file, by the name that [tool.hatch.metadata.hooks] has."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = metadata["urls"]["Repository"]

        def absolute(link: re.Match[str]) -> str:
            kind = "raw" if link[1].startswith("!") else "blob"
            return f"{link[1]}({repository}/{kind}/main/"

        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": RELATIVE.sub(absolute, text)}
