"""The gateway tells how it is, whatever one of its parts does when it is asked."""

import asyncio
from collections.abc import Sequence

from ductile_gateway.status import Look, Status, look_at_offers
from ductile_gateway.tools.catalog import Offers
from groundwork.service.errors import TryAgain
from schemas.gateway_status import Finding
from tests.gateway.parts import CATALOG

FINE = Finding(name="one", mark="ok", text="as it should be")


async def fine() -> Sequence[Finding]:
    return [FINE]


def told_by(**looks: Look) -> Status:
    return Status(looks, version="1.2.3")


async def test_what_the_parts_find_is_told_in_their_order() -> None:
    async def two() -> Sequence[Finding]:
        return [Finding(name="two", mark="warning", text="not quite", remedy="mend it")]

    told = await told_by(one=fine, two=two).tell()
    assert (told.version, [finding.name for finding in told.findings]) == ("1.2.3", ["one", "two"])


async def test_a_part_that_does_not_answer_is_a_finding_and_holds_up_none_of_the_others() -> None:
    async def never() -> Sequence[Finding]:
        await asyncio.Event().wait()
        raise AssertionError

    told = await Status({"slow": never, "one": fine}, version="1", within_s=0.05).tell()
    assert [(finding.name, finding.mark) for finding in told.findings] == [("slow", "warning"), ("one", "ok")]


async def test_a_part_that_cannot_look_says_why() -> None:
    async def cannot() -> Sequence[Finding]:
        raise TryAgain("the disk is full")

    (finding,) = (await told_by(store=cannot).tell()).findings
    assert (finding.name, finding.mark, finding.text) == ("store", "warning", "the disk is full")


async def test_a_flaw_in_one_part_is_a_finding_and_the_others_are_told() -> None:
    async def flawed() -> Sequence[Finding]:
        return [Finding(name="flawed", mark="ok", text="\ud800")]

    told = await told_by(flawed=flawed, one=fine).tell()
    assert [(finding.name, finding.mark) for finding in told.findings] == [("flawed", "warning"), ("one", "ok")]


def test_a_problem_is_shown_whatever_is_in_it() -> None:
    offers = Offers()
    offers.replace(CATALOG, ("plugin x: its command \ud800\x00 is left out",))
    assert look_at_offers(offers, version="1", runner="ductile")[1].text == "plugin x: its command    is left out"


async def test_many_who_ask_at_a_time_make_the_parts_look_once() -> None:
    looked = 0

    async def counted() -> Sequence[Finding]:
        nonlocal looked
        looked += 1
        await asyncio.sleep(0)
        return [FINE]

    asked = told_by(one=counted)
    answers = await asyncio.gather(*(asked.tell() for _ in range(50)))
    assert looked == 1
    assert len(set(map(id, answers))) == 1


def test_a_gateway_without_tools_says_that_it_waits_for_them() -> None:
    (finding,) = look_at_offers(Offers(), version="1", runner="ductile")
    assert (finding.mark, "requests wait on the bus" in finding.remedy) == ("wrong", True)


def test_each_tool_that_is_left_out_is_a_warning() -> None:
    offers = Offers()
    offers.replace(CATALOG, ("tool browse: there is no plugin browse",))
    first, second = look_at_offers(offers, version="1", runner="ductile")
    assert (first.mark, second.mark) == ("ok", "warning")
    assert "browse" in second.text
