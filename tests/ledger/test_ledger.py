"""The port Ledger with the receipts beside it, whatever fills it: what is known of a call, and for how long."""

import contextlib
from datetime import timedelta

import pytest

from ductile_gateway.calls.call import AlreadyStarted, Answer, Intent, Receipt, ToolOutcome
from ductile_gateway.calls.results import answer_to
from ductile_gateway.store.ledger import SqliteLedger
from ductile_gateway.store.stores import Stores
from groundwork.service.errors import NoRoom, TryAgain
from tests.gateway.parts import NOON, RUN, a_request, asked_for
from tests.kit.waiting import until
from tests.ledger.openers import RUN_BYTES, Opener

SECOND = timedelta(seconds=1)
NAMES = ("a.md", "a-02.md", "a-x.md")


def an_intent(step: int = 1, *, may_repeat: bool = False) -> Intent:
    asked = asked_for(a_request("save", {"é": [1.5, None, {"a": "b"}]}, step=step))
    return Intent(asked=asked, may_repeat=may_repeat, deadline_at=NOON + 60 * SECOND)


def an_answer(step: int = 1, *, seconds: int = 0, text: str = "done") -> Answer:
    return answer_to(an_intent(step).asked, ToolOutcome("ok", text=text), (), at=NOON + seconds * SECOND)


async def published(ledger: SqliteLedger, *answers: Answer) -> None:
    """They are on the bus, and the ledger knows."""
    for answer in answers:
        ledger.published(answer.key)

    async def known() -> bool:
        left = await ledger.answers_to_publish(NOON + timedelta(days=1))
        return not {answer.key for answer in answers} & {answer.key for answer in left}

    await until(known)


async def named(ledger: SqliteLedger, run_id: str, key: str, *candidates: tuple[str, ...]) -> tuple[str, ...]:
    return await ledger.name_artifacts(run_id, key, candidates, [f"of {key}"] * len(candidates), [1] * len(candidates))


@pytest.mark.parametrize("intended", [True, False])
async def test_an_answer_takes_the_place_of_an_intent_and_the_first_is_kept_for_ever(
    ledger: SqliteLedger, intended: bool
) -> None:
    if intended:
        await ledger.intend(an_intent())
    assert await ledger.answer(an_answer(text="first")) == an_answer(text="first")
    assert await ledger.answer(an_answer(text="second", seconds=5)) == an_answer(text="first")
    with contextlib.suppress(TryAgain):
        await ledger.intend(an_intent())
    assert await ledger.find(an_answer().key) == an_answer(text="first")
    assert await ledger.open_intents() == []


async def test_a_receipt_is_written_with_its_intent_and_never_over_another_one(stores: Stores) -> None:
    await stores.ledger.intend(an_intent(), Receipt(NOON))
    with pytest.raises(AlreadyStarted):
        await stores.ledger.intend(an_intent(may_repeat=True), Receipt(NOON + SECOND))
    assert await stores.ledger.open_intents() == [an_intent()]
    assert await stores.receipts.find(an_intent().asked.key) == Receipt(NOON)


async def test_all_is_there_for_the_next_process(opener: Opener) -> None:
    async with opener() as stores:
        ledger = stores.ledger
        await ledger.intend(an_intent(1))
        await ledger.answer(an_answer(2))
        await published(ledger, an_answer(2))
        await named(ledger, RUN, "call-1", NAMES)
    async with opener() as stores:
        ledger = stores.ledger
        assert await ledger.open_intents() == [an_intent(1)]
        assert await ledger.find(an_answer(2).key) == an_answer(2)
        assert await ledger.answers_to_publish(NOON + SECOND) == []
        assert await named(ledger, RUN, "call-2", NAMES) == ("a-02.md",)


@pytest.mark.attack(116)
async def test_the_artifacts_of_a_run_take_so_much_together_and_those_of_another_their_own(
    ledger: SqliteLedger,
) -> None:
    async def keep(run_id: str, key: str, size: int) -> None:
        await ledger.name_artifacts(run_id, key, [(f"{key}.md",)], [key], [size])

    await keep(RUN, "call-1", RUN_BYTES - 40)
    with pytest.raises(NoRoom, match=f"take {RUN_BYTES - 40} bytes already"):
        await keep(RUN, "call-2", 41)
    await keep(RUN, "call-1", RUN_BYTES - 40)
    await keep(RUN, "call-3", 40)
    await keep("run_another", "call-4", RUN_BYTES)


async def test_old_answers_are_forgotten_once_they_are_published_and_their_names_are_free_again(
    ledger: SqliteLedger,
) -> None:
    for step, seconds in ((1, 0), (2, 1), (3, 2)):
        await ledger.answer(an_answer(step, seconds=seconds))
    await named(ledger, RUN, an_answer(1).key, NAMES)
    await published(ledger, an_answer(1), an_answer(3))
    await ledger.intend(an_intent(4))
    await ledger.forget_before(NOON + 2 * SECOND)
    found = [await ledger.find(an_answer(step).key) for step in (1, 2, 3)]
    assert found == [None, an_answer(2, seconds=1), an_answer(3, seconds=2)]
    assert await ledger.open_intents() == [an_intent(4)]
    assert await named(ledger, RUN, "another", NAMES) == ("a.md",)
