"""Which tools there are: those that runs may use, with who offers each, or why there are none."""

from agent_service.api.handlers.tools import ToolCalls
from schemas.catalog import Catalog, ToolCommand
from tests.kit.runs import SEARCH

WRITE = ToolCommand(name="pin", tier="write", effect="external", approve="always")
BY_TWO = (
    SEARCH.model_copy(update={"executor": "ductile-gateway"}),
    SEARCH.model_copy(update={"name": "board", "executor": "boards", "commands": (WRITE,), "output": "untrusted"}),
)


class Offered:
    """Fills Skills; one of two executors is away."""

    async def catalog(self) -> Catalog:
        return Catalog(tools=BY_TWO)

    def present(self) -> frozenset[str]:
        return frozenset({"ductile-gateway"})


async def test_each_tool_says_who_offers_it_and_what_its_commands_take() -> None:
    told = await ToolCalls(Offered(), lambda: ["agent.tools names serach, which nobody offers"]).list_tools()
    board, search = told.tools
    assert (board.name, board.executor, board.present, board.output) == ("board", "boards", False, "untrusted")
    (pin,) = board.commands
    assert (pin.name, pin.tier, pin.effect, pin.approve) == ("pin", "write", "external", "always")
    assert (search.name, search.present) == ("search", True)
    assert search.commands[0].input_schema["required"] == ["text"]
    assert told.problems == ("agent.tools names serach, which nobody offers",)
