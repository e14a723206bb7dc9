"""Dead letters that are kept no longer, and the gateway that is asked to forget: on a real server."""

from datetime import timedelta

import pytest

from agent_service.archive.retention import LetterRules
from agent_service.bus.retention import NatsBesideRuns
from agent_service.bus.topology import topology
from agent_service.trust.identity import SystemClock
from ductile_gateway.bus.micro_service import serve_questions
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from schemas import subjects
from schemas.status import GatewayPruned
from tests.gateway.test_on_nats import fine
from tests.kit.fakes import FakeClock

DAY = timedelta(days=1)
BY_DAYS, BY_BYTES = "agent.keep_runs.dead_letters_days: 1", "agent.keep_runs.max_gib.dead_letters: 3.63216e-06"


@pytest.fixture
async def letters(link: NatsLink) -> NatsLink:
    """Five of about a kilobyte each, of which one tells of another."""
    await create_missing(link, topology(max_gib=1))
    for number in range(5):
        subject = subjects.REJECTED if number == 1 else subjects.DEAD_LETTERS_LOOP
        await link.publish(subject, b"x" * 1000, msg_id=f"letter-{number}", headers={})
    return link


async def numbers(link: NatsLink) -> list[int]:
    state = (await link.jetstream.stream_info(subjects.STREAM_DEAD_LETTERS)).state
    return list(range(state.first_seq, state.last_seq + 1))


def beside(link: NatsLink, *, later: timedelta = timedelta(0), **rules: object) -> NatsBesideRuns:
    return NatsBesideRuns(link, LetterRules(**rules), FakeClock(SystemClock().now() + later))  # type: ignore[arg-type]


async def test_dead_letters_go_by_days_and_the_newest_message_of_their_stream_stays(letters: NatsLink) -> None:
    assert await beside(letters, kept=DAY).letters(dry_run=False) == {}
    old = beside(letters, kept=DAY, later=2 * DAY)
    assert await old.letters(dry_run=True) == {BY_DAYS: 4}
    assert await numbers(letters) == [1, 2, 3, 4, 5]
    assert await old.letters(dry_run=False) == {BY_DAYS: 4}
    assert await numbers(letters) == [5]
    assert await old.letters(dry_run=False) == {}


async def test_the_oldest_dead_letters_go_while_they_take_too_much(letters: NatsLink) -> None:
    assert await beside(letters, most=3900).letters(dry_run=False) == {BY_BYTES: 2}
    assert await numbers(letters) == [3, 4, 5]


async def test_a_gateway_is_asked_and_where_none_answers_the_command_for_its_machine_is_named(link: NatsLink) -> None:
    asked: list[bool] = []

    async def prune(dry_run: bool) -> GatewayPruned:
        asked.append(dry_run)
        return GatewayPruned(rows={"answers": 3}, dry_run=dry_run)

    told = await beside(link).prune(dry_run=False)
    assert (told.gateway, "`ductile-gateway prune`" in told.trouble) == ({}, True)
    async with serve_questions(link, fine) as questions:
        await questions.answer_prune(prune)
        assert (await beside(link).prune(dry_run=True)).gateway == {"answers": 3}
        assert (await beside(link).prune(dry_run=False)).trouble == ""
    assert asked == [True, False]
