"""Journal entries: hash chain, names of flaws, and contents of a commit."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from agent_service.core.decide import decide
from agent_service.core.events import TimerFired
from agent_service.run.journal import GENESIS, RULES, Entry, Run, commit_of, flaw_in_chain, growth_of
from tests.core.cues import queued, wake
from tests.core.script import NOON, Script, commits_of
from tests.core.words import run_at


def chain(script: Script) -> list[Entry]:
    return [commit.entry for commit in commits_of(script)]


# What a commit holds


def test_the_brief_is_written_only_when_it_changed() -> None:
    briefs = [commit.brief for commit in commits_of(run_at("run waiting"))]
    assert [brief is not None for brief in briefs] == [True, True, False, False]


def test_there_is_nothing_to_commit_of_an_ignored_event() -> None:
    run = run_at("run waiting")
    before = Run(state=run.state, head=GENESIS)
    event = TimerFired(at=NOON)
    with pytest.raises(ValueError, match="nothing to commit: nothing is due"):
        commit_of(before, decide(run.state, event))


# The chain


def test_a_flaw_of_a_chain_is_named_and_a_whole_chain_has_none() -> None:
    one, two, three, four = written = chain(run_at("run waiting"))
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


def test_a_hash_depends_on_the_instant_and_not_on_the_zone_it_is_written_in() -> None:
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


STORIES = (
    "run reflecting ; done",
    "run waiting ; error upstream retry ; due",
    "run reflecting ; unavailable pause",
    "run waiting ; cancel",
    "run waiting browse ; return ; reflect continue ; plan post ; approve",
    "run planning ; ask ; answer",
    "run waiting ledger ; error in_doubt ; answer",
    "run waiting on_budget=pause ; wait 1h ; early",
    "run reflecting ; rest 600 ; due",
)
KNOWN_FACTS = {1: "56c415419930b949"}
"""Hashes of these stories, by version of the rules."""


def test_events_lead_to_the_facts_that_this_version_of_the_rules_is_known_for() -> None:
    facts = "".join(entry.facts for story in STORIES for entry in chain(run_at(story)))
    assert hashlib.sha256(facts.encode()).hexdigest()[:16] == KNOWN_FACTS[RULES], "raise RULES, and note the digest"


def test_of_a_list_is_stored_what_its_beginning_lost_and_what_its_end_gained() -> None:
    state = run_at("run waiting").state
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
