"""What came of a command on records: for people `str(outcome)`, for programs JSON, for shells the exit code."""

from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any, NoReturn, cast

import typer

from agent_service.cli import output
from agent_service.cli.exits import Exit
from agent_service.cli.working import awaited, log_only_what_is_not_said


class Outcome:
    """A dataclass."""

    __slots__ = ()

    @property
    def ok(self) -> bool:
        return True

    def for_programs(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(cast("Any", self))}


def tell(outcome: Outcome, *, as_json: bool) -> NoReturn:
    """Raises typer.Exit: 1 unless the outcome is ok."""
    output.tell(outcome.for_programs(), str(outcome), as_json=as_json)
    raise typer.Exit(Exit.OK if outcome.ok else Exit.FAILED)


def tell_of(work: Coroutine[Any, Any, Outcome], *, as_json: bool) -> NoReturn:
    """Do the work, then tell its outcome."""
    log_only_what_is_not_said()
    tell(awaited(work), as_json=as_json)
