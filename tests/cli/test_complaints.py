"""Errors become one message and an exit code that says what to do."""

import pytest

from agent_service.cli.errors import Exit, NotDone, complaint_of
from groundwork.service.errors import Broken, Misconfigured, NoRoom, TryAgain, Unreachable
from tests.cli.calling import agentic_here


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotDone("no", Exit.NOT_FOUND), Exit.NOT_FOUND),
        (Misconfigured("no"), Exit.MISCONFIGURED),
        (Unreachable("no"), Exit.UNREACHABLE),
        (Broken("no"), Exit.MISCONFIGURED),
        (NoRoom("no"), Exit.TRY_AGAIN),
        (TryAgain("no"), Exit.TRY_AGAIN),
        (PermissionError(13, "no", "/etc/x"), Exit.MISCONFIGURED),
    ],
)
def test_every_error_of_ours_has_its_code_also_deep_in_a_task_group(error: Exception, code: Exit) -> None:
    for told in (error, ExceptionGroup("tasks", [ExceptionGroup("more", [error])])):
        complaint = complaint_of(told)
        assert complaint is not None
        assert (complaint.exit_code, "no" in str(complaint)) == (code, True)


def test_a_fault_of_ours_is_not_passed_off_as_the_users() -> None:
    assert complaint_of(KeyError("x")) is None
    assert complaint_of(ExceptionGroup("tasks", [Misconfigured("a"), KeyError("x")])) is None


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("command", [("run", "hi"), ("wake", "hi"), ("answer", "last", "x")])
def test_a_budget_that_is_no_number_is_a_wrong_call(command: tuple[str, ...], number: str) -> None:
    called = agentic_here(*command, "--max-cost-usd", number)
    assert (called.code, "must be a number" in called.err) == (Exit.USAGE, True)
