"""Commands that work by themselves, on this machine or on the bus."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from groundwork.service import json_log

T = TypeVar("T")


def awaited(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def log_only_what_is_not_said() -> None:
    """What the parts below log, the command says in its own words; a failure beyond that is still told."""
    json_log.set_up("ERROR", "text", redact=tuple)
