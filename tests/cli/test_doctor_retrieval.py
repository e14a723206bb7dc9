"""`agentic doctor` says whether a tool that asks for a retrieval can have one."""

from typing import Any

import pytest

from agent_service.cli.doctor.tools import retrieval
from agent_service.settings import ContinuationSettings
from schemas.catalog import ToolCommand, ToolOffer
from schemas.status import Finding

COMMANDS = (ToolCommand(name="index", tier="write"), ToolCommand(name="search", tier="read"))
KNOWLEDGE = ToolOffer(name="knowledge", route="knowledge", commands=COMMANDS)
WRITES = ToolOffer(name="diary", route="diary", commands=(ToolCommand(name="add", tier="write"),))


def found(*offered: ToolOffer, **settings: Any) -> Finding:
    return retrieval(ContinuationSettings(**settings), offered)


@pytest.mark.parametrize("named", [{}, {"retrieval_tool": "knowledge"}])
def test_a_tool_is_asked_by_its_first_command_that_only_reads(named: dict[str, str]) -> None:
    assert found(WRITES, KNOWLEDGE, **named) == Finding(
        name="retrieval", mark="ok", text="knowledge.search, profile fast"
    )


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("wiki", "runs have no tool wiki"),
        ("knowledge.find", "knowledge has no command find"),
        ("diary", "diary has no command that only reads"),
    ],
)
def test_one_that_was_named_and_is_not_there_is_warned_of(named: str, says: str) -> None:
    told = found(KNOWLEDGE, WRITES, retrieval_tool=named)
    assert told.mark == "warning"
    assert says in told.text
