"""The operator's word on tools comes before that of who offers them."""

from agent_service.trust.oversight import Oversight, undeclared
from schemas.catalog import ToolCommand, ToolOffer

MAIL = ToolOffer(
    name="mail",
    route="mail",
    commands=(ToolCommand(name="send", tier="write", approve="never"), ToolCommand(name="list", tier="read")),
)


def rules(offer: ToolOffer) -> dict[str, str | None]:
    return {command.name: command.approve for command in offer.commands}


def test_a_rule_of_a_command_comes_before_that_of_its_tool() -> None:
    ruled = Oversight(approve={"mail": "untrusted", "mail.send": "always"}).over(MAIL)
    assert rules(ruled) == {"send": "always", "list": "untrusted"}


def test_what_the_operator_says_nothing_of_stays_as_it_is_offered() -> None:
    assert Oversight(approve={"mail.list": "always", "other": "always"}).over(MAIL).commands[0] == MAIL.commands[0]
    assert Oversight(approve={"other": "always"}, untrusted=frozenset({"other"})).over(MAIL) is MAIL


def test_results_can_be_called_those_of_strangers() -> None:
    assert Oversight(untrusted=frozenset({"mail"})).over(MAIL).output == "untrusted"


def test_results_can_be_called_the_houses_own_for_a_tool_or_for_one_command_of_it() -> None:
    assert undeclared([MAIL]) == ("mail",)
    whole = Oversight(trusted=frozenset({"mail"})).over(MAIL)
    assert (whole.output, undeclared([whole])) == ("trusted", ())
    one = Oversight(trusted=frozenset({"mail.list"})).over(MAIL)
    assert (one.output, [command.output for command in one.commands]) == (None, [None, "trusted"])
    assert undeclared([one]) == ("mail",)
    assert Oversight(trusted=frozenset({"mail"}), untrusted=frozenset({"mail"})).over(MAIL).output == "untrusted"
    assert Oversight(trusted=frozenset({"mial"})).unknown([MAIL]) == ("mial",)
