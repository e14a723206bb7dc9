"""The anchors that are kept beside the keys, which are not where the store is: one for each store that they sealed."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from agent_service.anchors import Anchor
from groundwork.service import private_file
from groundwork.service.errors import Misconfigured

_ANCHORS = TypeAdapter(dict[str, Anchor])


class AnchorFile:
    """`<keys file>.anchors`. Raises Misconfigured where it cannot be read or written."""

    def __init__(self, keys_file: Path) -> None:
        self._path = keys_file.with_name(f"{keys_file.name}.anchors")

    def all(self) -> Mapping[str, Anchor]:
        """By the id of the store; empty where nothing was sealed yet."""
        try:
            return _ANCHORS.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Misconfigured(
                f"the anchors in {self._path} cannot be read: restore the file from your backup; or look with `agentic "
                "verify --all`, move the file away, and take the store as it is with `agentic seal`"
            ) from error

    def keep(self, anchor: Anchor) -> None:
        """Put it in the place of the store's last one. Not synced: an older one only shows less."""
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                private_file.left_to_owner(beside)
                file.write(_ANCHORS.dump_json({**self.all(), anchor.store: anchor}, indent=1))
            beside.replace(self._path)
        except OSError as error:
            raise Misconfigured(f"the anchors cannot be written to {self._path}: {error.strerror}") from error
