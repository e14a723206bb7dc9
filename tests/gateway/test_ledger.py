"""The ledger: what is known of a call, and for how long; and the file that holds it."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from ductile_gateway.calls.call import AlreadyStarted, Answer, Intent, Receipt, ToolOutcome
from ductile_gateway.calls.results import answer_to
from ductile_gateway.status import look_at_store
from ductile_gateway.store import FILE, open_store
from ductile_gateway.store.ledger import ANSWERS_TO_PUBLISH, OPEN_INTENTS, SqliteLedger
from groundwork.service.errors import Misconfigured, NoRoom, TryAgain
from tests.gateway.parts import NOON, RUN, a_request, asked_for
from tests.gateway.stores import KeptReceipts, opened

SECOND = timedelta(seconds=1)
NAMES = ("a.md", "a-02.md", "a-x.md")


@pytest.fixture
async def receipts(tmp_path: Path) -> AsyncIterator[KeptReceipts]:
    async with opened(tmp_path, KeptReceipts) as stored:
        yield stored


@pytest.fixture
def ledger(receipts: KeptReceipts) -> SqliteLedger:
    return receipts.ledger


def an_intent(step: int = 1, *, may_repeat: bool = False) -> Intent:
    asked = asked_for(a_request("save", {"é": [1.5, None, {"a": "b"}]}, step=step))
    return Intent(asked=asked, may_repeat=may_repeat, deadline_at=NOON + 60 * SECOND)


def an_answer(step: int = 1, *, seconds: int = 0, text: str = "done") -> Answer:
    return answer_to(an_intent(step).asked, ToolOutcome("ok", text=text), (), at=NOON + seconds * SECOND)


async def named(ledger: SqliteLedger, run_id: str, key: str, *candidates: tuple[str, ...]) -> tuple[str, ...]:
    return await ledger.name_artifacts(run_id, key, candidates, [f"of {key}"] * len(candidates), [1] * len(candidates))


async def test_an_intent_is_found_as_it_was_written_and_a_newer_one_replaces_it(ledger: SqliteLedger) -> None:
    newer = replace(an_intent(2), deadline_at=NOON + 90 * SECOND, may_repeat=True)
    for intent in (an_intent(1), an_intent(2), newer):
        await ledger.intend(intent)
        assert await ledger.find(intent.asked.key) == intent
    assert await ledger.open_intents() == [an_intent(1), newer]
    assert await ledger.find(an_intent(3).asked.key) is None


async def test_an_intent_that_nobody_waited_for_is_there_after_the_next_write(ledger: SqliteLedger) -> None:
    ledger.intend_soon(an_intent(1))
    await ledger.intend(an_intent(2))
    assert await ledger.find(an_intent(1).asked.key) == an_intent(1)


@pytest.mark.parametrize("intended", [True, False])
async def test_an_answer_takes_the_place_of_an_intent_and_the_first_is_kept_for_ever(
    ledger: SqliteLedger, intended: bool
) -> None:
    if intended:
        await ledger.intend(an_intent())
    assert await ledger.answer(an_answer(text="first")) == an_answer(text="first")
    assert await ledger.answer(an_answer(text="second", seconds=5)) == an_answer(text="first")
    await ledger.intend(an_intent())
    assert await ledger.find(an_answer().key) == an_answer(text="first")
    assert await ledger.open_intents() == []


async def test_open_intents_come_in_the_order_of_writing(ledger: SqliteLedger) -> None:
    for step in (3, 1, 2):
        await ledger.intend(an_intent(step))
    await ledger.answer(an_answer(1))
    assert await ledger.open_intents() == [an_intent(3), an_intent(2)]


async def test_a_receipt_is_written_with_its_intent_and_never_over_another_one(receipts: KeptReceipts) -> None:
    await receipts.ledger.intend(an_intent(), Receipt(NOON))
    with pytest.raises(AlreadyStarted):
        await receipts.ledger.intend(an_intent(may_repeat=True), Receipt(NOON + SECOND))
    assert await receipts.ledger.open_intents() == [an_intent()]
    assert await receipts.find(an_intent().asked.key) == Receipt(NOON)


async def test_a_receipt_lasts_until_the_call_is_answered(tmp_path: Path) -> None:
    sent, key = Receipt(NOON + timedelta(microseconds=1), way="pipeline", newest="j-0"), an_intent().asked.key
    async with opened(tmp_path, KeptReceipts) as receipts:
        await receipts.ledger.intend(an_intent(), sent)
        assert await receipts.find(key) == sent
        await receipts.accepted(key, "j-1")
    async with opened(tmp_path, KeptReceipts) as receipts:
        assert await receipts.find(key) == replace(sent, job_id="j-1")
        await receipts.ledger.answer(an_answer())
        assert await receipts.find(key) is None


@pytest.mark.parametrize("soon", [True, False])
async def test_a_receipt_that_was_dropped_leaves_the_intent_which_may_be_begun_again(
    receipts: KeptReceipts, soon: bool
) -> None:
    key = an_intent().asked.key
    await receipts.ledger.intend(an_intent(), Receipt(NOON))
    await receipts.accepted(key, "j-1")
    receipts.drop_soon(key) if soon else await receipts.drop(key)
    assert await receipts.find(key) is None
    assert await receipts.ledger.open_intents() == [an_intent()]
    await receipts.ledger.intend(an_intent(), Receipt(NOON + SECOND))
    assert await receipts.find(key) == Receipt(NOON + SECOND)


async def test_an_answer_is_to_be_published_until_it_is_and_once_more_if_it_is_recent(ledger: SqliteLedger) -> None:
    for step, seconds in ((1, 0), (2, 10), (3, 70)):
        await ledger.answer(an_answer(step, seconds=seconds))
    ledger.published(an_answer(2).key)
    ledger.published(an_answer(3).key)
    await ledger.intend(an_intent(4))
    assert await ledger.answers_to_publish(NOON + 60 * SECOND) == [an_answer(1), an_answer(3, seconds=70)]


async def test_old_answers_are_forgotten_once_they_are_published_and_their_names_are_free_again(
    ledger: SqliteLedger,
) -> None:
    for step, seconds in ((1, 0), (2, 1), (3, 2)):
        await ledger.answer(an_answer(step, seconds=seconds))
    await named(ledger, RUN, an_answer(1).key, NAMES)
    ledger.published(an_answer(1).key)
    ledger.published(an_answer(3).key)
    await ledger.intend(an_intent(4))
    await ledger.forget_before(NOON + 2 * SECOND)
    found = [await ledger.find(an_answer(step).key) for step in (1, 2, 3)]
    assert found == [None, an_answer(2, seconds=1), an_answer(3, seconds=2)]
    assert await ledger.open_intents() == [an_intent(4)]
    assert await named(ledger, RUN, "another", NAMES) == ("a.md",)


async def test_more_old_answers_than_are_forgotten_at_once_are_all_forgotten(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    for step in range(1, 1203):
        ledger.intend_soon(an_intent(step))
    await ledger.answer(an_answer())
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("UPDATE calls SET answer = x'00', completed_at = 0, published = 1")
        connection.commit()
    await ledger.forget_before(NOON)
    assert await ledger.find(an_intent(1202).asked.key) is None


async def test_an_artifact_gets_the_first_name_that_no_other_of_the_run_has_and_keeps_it(ledger: SqliteLedger) -> None:
    for _ in range(2):
        assert await named(ledger, RUN, "call-1", NAMES, NAMES, ("b.md",)) == ("a.md", "a-02.md", "b.md")
        assert await named(ledger, RUN, "call-2", ("B.MD", "c.md")) == ("c.md",), "case alone is no difference"
        assert await named(ledger, "other-run", "call-3", NAMES) == ("a.md",)


async def test_the_digest_of_an_artifact_is_that_of_the_call_whose_name_it_is(ledger: SqliteLedger) -> None:
    for digest in ("first", "made again"):
        await ledger.name_artifacts(RUN, "call-1", [("a.md",)], [digest], [1])
        await ledger.name_artifacts(RUN, "call-2", [("a.md", "b.md")], ["of another"], [1])
        assert await ledger.digest_of(RUN, "a.md") == digest
    assert await ledger.digest_of(RUN, "b.md") == "of another"
    assert await ledger.digest_of("another run", "a.md") is None


async def test_the_file_holds_everything_for_the_next_process(tmp_path: Path) -> None:
    async with opened(tmp_path, SqliteLedger) as ledger:
        await ledger.intend(an_intent(1))
        await ledger.answer(an_answer(2))
        ledger.published(an_answer(2).key)
        await named(ledger, RUN, "call-1", NAMES)
    async with opened(tmp_path, SqliteLedger) as ledger:
        assert await ledger.open_intents() == [an_intent(1)]
        assert await ledger.find(an_answer(2).key) == an_answer(2)
        assert await ledger.answers_to_publish(NOON + SECOND) == []
        assert await named(ledger, RUN, "call-2", NAMES) == ("a-02.md",)


@pytest.mark.parametrize("write", ["intend", "answer"])
async def test_what_was_waited_for_is_in_the_file_at_once(ledger: SqliteLedger, tmp_path: Path, write: str) -> None:
    await (ledger.intend(an_intent()) if write == "intend" else ledger.answer(an_answer()))
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("SELECT count(*) FROM calls").fetchone() == (1,)


@pytest.mark.parametrize(("statement", "values"), [(OPEN_INTENTS, ()), (ANSWERS_TO_PUBLISH, (5,))])
async def test_a_start_looks_at_no_more_calls_than_it_has_to_finish(
    ledger: SqliteLedger, tmp_path: Path, statement: str, values: tuple[int, ...]
) -> None:
    del ledger
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    assert not [step for *_, step in plan if step.startswith("SCAN calls")]


@pytest.mark.parametrize(("spoil", "told"), [("version", "newer"), ("content", FILE)])
async def test_a_file_of_a_newer_program_or_that_is_none_is_named_and_left_alone(
    tmp_path: Path, spoil: str, told: str
) -> None:
    if spoil == "content":
        (tmp_path / FILE).write_bytes(b"no database" * 100)
    else:
        with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
            connection.execute("PRAGMA user_version = 99")
    with pytest.raises(Misconfigured, match=told):
        async with open_store(tmp_path):
            pass


async def test_a_ledger_that_is_closing_takes_nothing_and_says_that_it_may_be_tried_again(tmp_path: Path) -> None:
    async with opened(tmp_path, SqliteLedger) as ledger:
        pass
    with pytest.raises(TryAgain):
        await ledger.answer(an_answer())
    ledger.published(an_answer().key)


async def test_a_full_disk_is_logged_as_an_error_once_and_seen_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def limit(pages: str) -> Callable[[sqlite3.Connection], object]:
        return lambda connection: connection.execute(f"PRAGMA max_page_count={pages}").fetchone()

    def fill(connection: sqlite3.Connection) -> object:
        insert = "INSERT INTO artifacts (run_id, name, key, place) VALUES (?, 'a.md', 'key', 1)"
        return connection.execute(insert, ("x" * 100_000,))

    async with open_store(tmp_path) as file:
        await file.write(limit("1"))  # no more than there are
        for _ in range(2):
            with pytest.raises(TryAgain, match="no room"):
                await file.write(fill)
        (found,) = look_at_store(file.trouble)
        assert (found.mark, "no room" in found.text) == ("wrong", True)
        await file.write(limit("1000000"))
        assert look_at_store(file.trouble) == ()
    ours = [record for record in caplog.records if record.name == "groundwork.sqlite.file"]
    assert [record.levelname for record in ours] == ["ERROR", "WARNING"]


@pytest.mark.attack(116)
async def test_the_artifacts_of_a_run_take_so_much_together_and_those_of_another_their_own(tmp_path: Path) -> None:
    async with open_store(tmp_path) as file:
        ledger = SqliteLedger(file, run_bytes=100)

        async def keep(run_id: str, key: str, size: int) -> None:
            await ledger.name_artifacts(run_id, key, [(f"{key}.md",)], [key], [size])

        await keep(RUN, "call-1", 60)
        with pytest.raises(NoRoom, match="take 60 bytes already"):
            await keep(RUN, "call-2", 41)
        await keep(RUN, "call-1", 60)
        await keep(RUN, "call-3", 40)
        await keep("run_another", "call-4", 100)
