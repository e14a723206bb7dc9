"""What a server denies is remembered for as long as it goes on, and told where it cannot be done without."""

import pytest

from groundwork.nats.connection import DENIED_FOR_S, ConnectionWatch, Denial, Needs, PendingAnswers

NEEDS = Needs(publish=("agent.completed", "$KV.Leases.*"), subscribe=("orders.>",), remedy="allow it")


def said(deed: str, subject: str) -> str:
    return f'nats: permissions violation for {deed} to "{subject}"'


@pytest.mark.parametrize(
    ("denial", "is_needed"),
    [
        (Denial("publish", "agent.completed"), True),
        (Denial("publish", "$kv.leases.agent"), True),
        (Denial("subscription", "orders.new"), True),
        (Denial("publish", "orders.new"), False),
        (Denial("subscription", "agent.completed"), False),
        (Denial("publish", "_inbox.of.somebody"), False),
    ],
)
def test_what_is_denied_counts_where_it_is_needed(denial: Denial, is_needed: bool) -> None:
    assert (str(denial) in NEEDS.unmet([denial])) is is_needed


async def test_a_denial_is_forgotten_when_it_does_not_come_again() -> None:
    now = [0.0]
    watch = ConnectionWatch(PendingAnswers(), clock=lambda: now[0])
    tell = watch.callbacks()["error_cb"]
    await tell(Exception(said("publish", "a")))
    await tell(Exception(said("publish", "b")))
    now[0] = DENIED_FOR_S - 1
    await tell(Exception(said("publish", "b")))
    assert [denial.subject for denial in watch.denials] == ["a", "b"]
    now[0] = DENIED_FOR_S + 1
    assert [denial.subject for denial in watch.denials] == ["b"]
