"""Entries of the journal: how they chain, what a flaw is called, and what a commit holds."""

import hashlib
from dataclasses import replace
from typing import Any, get_args

import pytest

from agent_service.core.decide import decide
from agent_service.core.events import Event, TimerFired, WakeAccepted
from agent_service.run.journal import GENESIS, RULES, Entry, Run, as_today, commit_of, flaw_in_chain, growth_of
from agent_service.run.moments import retell
from tests.core.cues import (
    a_finished_run,
    a_paused_run,
    a_retrying_run,
    a_run_for_answer,
    a_run_for_approval,
    a_run_for_time,
    a_run_in_doubt,
    a_run_paused_while_waiting,
    a_waiting_run,
    answer,
    approves,
    cancel,
    due,
    queued,
    wake,
)
from tests.core.rules.reading import commits_of
from tests.core.script import NOON, Script


def chain(script: Script) -> list[Entry]:
    return [commit.entry for commit in commits_of(script.story)]


# What a commit holds


def test_the_brief_is_written_only_when_it_changed() -> None:
    assert [commit.brief is not None for commit in commits_of(a_waiting_run().story)] == [True, True, False, False]


def test_there_is_nothing_to_commit_of_an_ignored_event() -> None:
    run = a_waiting_run()
    before = Run(state=run.state, head=GENESIS)
    event = TimerFired(at=NOON)
    with pytest.raises(ValueError, match="nothing to commit: nothing is due"):
        commit_of(before, event, decide(run.state, event))


# The chain


def test_a_flaw_of_a_chain_is_named_and_a_whole_chain_has_none() -> None:
    one, two, three, four = written = chain(a_waiting_run())
    changes: tuple[dict[str, Any], ...] = (
        {"event": '{"at":"2026-11-21T12:00:00Z","skills":[]}'},
        {"at": NOON.replace(second=1)},
        {"kind": "TimerFired"},
        {"facts": "{}"},
        {"run_id": "run_other"},
        {"hash": "0" * 64},
    )
    forged = replace(two, event="{}")
    stranger = chain(Script() >> replace(wake(), run_id="run_other"))[0]
    flaws: list[tuple[list[Entry], str | None]] = [
        ([], None),
        (written, None),
        *(([one, replace(two, **each), three], "entry 2 was changed after it was written") for each in changes),
        ([one, replace(forged, hash=forged.recomputed_hash()), three], "entry 3 does not continue entry 2"),
        ([one, three, four], "entry 2 is missing: entry 3 stands in its place"),
        ([two, three], "entry 1 is missing: entry 2 stands in its place"),
        ([stranger, two], "entry 2 does not continue entry 1"),
    ]
    assert [flaw_in_chain(entries) for entries, _ in flaws] == [flaw for _, flaw in flaws]


def test_a_hash_depends_on_the_instant_and_not_on_the_zone_it_is_told_in() -> None:
    (entry,) = chain(queued())
    assert replace(entry, at=entry.at.astimezone()).recomputed_hash() == entry.hash


# Reading


def test_an_event_of_an_unknown_kind_asks_for_a_newer_version_and_unreadable_content_is_an_error_too() -> None:
    (entry,) = chain(queued())
    unknown = rf"run {entry.run_id}: entry 1 is of unknown kind 'RunForked': use a newer version"
    for changed, told in (
        (replace(entry, kind="RunForked"), unknown),
        (replace(entry, event='{"at":"2026-11-21T12:00:00Z"}'), "WakeAccepted"),
    ):
        with pytest.raises(ValueError, match=told):
            changed.decoded()


FORMAT_1 = {
    "WakeAccepted": '{"at":"2026-11-21T12:00:00Z","run_id":"r1","wake_id":"w1","brief":{"goal":"g",'
    '"announced":true,"limits":{"deadline_at":"2026-11-21T13:00:00Z","max_steps":3}}}',
    "RunStarted": '{"at":"2026-11-21T12:00:00Z","skills":[{"name":"fetch","route":"jina-reader",'
    '"commands":[{"name":"handle","tier":"read"}]}]}',
    "CallReserved": '{"at":"2026-11-21T12:00:00Z","call":1,"model":"m","reserve":{"tokens":9000,"cost_usd":null}}',
    "ModelReplied": '{"at":"2026-11-21T12:00:00Z","call":1,"model":"m","usage":{"input_tokens":1,"output_tokens":2,'
    '"cost_usd":null},"decision":{"verdict":"continue","summary":"s"},"plan":{"action":{"tool":"fetch",'
    '"command":"handle","arguments":{"url":"u"}}}}',
    "ModelUnavailable": '{"at":"2026-11-21T12:00:00Z","call":1,"remedy":"try_again","error_class":"c","message":"m"}',
    "ToolReturned": '{"at":"2026-11-21T12:00:00Z","result":{"run_id":"r1","step":1,"tool":"fetch","status":"error",'
    '"error":{"class":"c","message":"m"},"completed_at":"2026-11-21T12:00:00Z"}}',
    "CancelRequested": '{"at":"2026-11-21T12:00:00Z","reason":"r"}',
    "SignalReceived": '{"at":"2026-11-21T12:00:00Z","signal":{"run_id":"r1","signal_id":"s1","kind":"resume"}}',
    "TimerFired": '{"at":"2026-11-21T12:00:00Z"}',
    "TurnBroke": '{"at":"2026-11-21T12:00:00Z","reason":"r"}',
    "StoodStill": '{"at":"2026-11-21T12:00:00Z","since":"2026-11-21T11:00:00Z","by":"b"}',
}
"""Events as version 1 of the format wrote them."""


def test_every_kind_of_event_as_version_1_wrote_it_stays_readable() -> None:
    assert set(FORMAT_1) == {kind.__name__ for kind in get_args(Event)}
    (entry,) = chain(queued())
    for kind, text in FORMAT_1.items():
        event = replace(entry, kind=kind, event=text).decoded()
        assert (type(event).__name__, event.at) == (kind, NOON)


KNOWN_FACTS = {1: "de0aec267ac6bbf7"}
"""Of the stories below, by the version of the rules."""


def test_events_lead_to_the_facts_that_this_version_of_the_rules_is_known_for() -> None:
    stories = [a_finished_run(), a_retrying_run() >> due, a_paused_run(), a_waiting_run() >> cancel()]
    stories += [a_run_for_approval() >> approves(), a_run_for_answer() >> answer(), a_run_in_doubt() >> answer()]
    stories += [a_run_paused_while_waiting(), a_run_for_time() >> due]
    facts = "".join(entry.facts for run in stories for entry in chain(run))
    assert hashlib.sha256(facts.encode()).hexdigest()[:16] == KNOWN_FACTS[RULES], "raise RULES, and note the digest"


def test_a_hash_of_format_1_stays_valid() -> None:
    hashed = "8fa2a1f381c0cd182372f620f78727a0a1be381ac372ae3b94888252939b7888"
    entry = Entry(
        run_id="r1",
        seq=1,
        at=NOON,
        kind="TimerFired",
        event=FORMAT_1["TimerFired"],
        facts='{"rules":1,"facts":[]}',
        previous=GENESIS,
        hash=hashed,
    )
    assert flaw_in_chain([entry]) is None


def test_an_entry_names_the_rules_it_was_decided_by_and_later_rules_read_it_in_their_own_way() -> None:
    """Under an invented version 2 of the rules a run has at most one step."""

    def as_version_2(event: Event, rules: int) -> Event:
        if rules >= 2 or not isinstance(event, WakeAccepted):
            return event
        limits = replace(event.brief.limits, max_steps=1)
        return replace(event, brief=replace(event.brief, limits=limits))

    written = chain(a_finished_run())
    assert {entry.rules for entry in written} == {RULES}
    first, last = (list(retell(written, upcast=upcast))[-1].after for upcast in (as_today, as_version_2))
    assert (first.brief.limits.max_steps, last.brief.limits.max_steps) == (10, 1)
    by_version_2 = replace(written[0], facts=written[0].facts.replace('"rules":1', '"rules":2'))
    assert (by_version_2.rules, by_version_2.decoded(as_version_2)) == (2, written[0].decoded())


def test_of_a_list_is_stored_what_its_beginning_lost_and_what_its_end_gained() -> None:
    state = a_waiting_run().state
    for before, after, dropped, added in (
        ("", "a", 0, "a"),
        ("ab", "abc", 0, "c"),
        ("abc", "bcd", 1, "d"),
        ("abc", "cde", 2, "de"),
        ("ab", "x", 2, "x"),
        ("aa", "a", 1, ""),
        ("aba", "bab", 1, "b"),
    ):
        (growth,) = growth_of(replace(state, facts=tuple(before)), replace(state, facts=tuple(after)))
        assert (growth.field, growth.dropped, growth.added) == ("facts", dropped, tuple(f'"{item}"' for item in added))
