"""The gateway tells how it is, whatever one of its parts does when it is asked."""

import asyncio
from collections.abc import Sequence

from ductile_gateway.status import Look, Status
from schemas.status import Finding

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
