"""Rules of the journal: it holds everything that happened, and can be read back."""

from pydantic_core import to_json

from agent_service.core.waiting import Status
from agent_service.run import journal, messages
from agent_service.run.journal import replay
from schemas import subjects
from schemas.events import envelope_of
from tests.core.rules.reading import Story, after, entries
from tests.core.script import commits_of


def the_journal_folds_to_the_same_states_and_the_same_facts(story: Story) -> None:
    commits = commits_of(story)
    replayed = list(replay(commit.entry for commit in commits))
    assert [change.state for change in replayed] == [commit.state for commit in commits]
    assert [change.facts for change in replayed] == [commit.facts for commit in commits]
    assert replayed[-1].state == after(story[-1])
    assert journal.flaw_in_chain([commit.entry for commit in commits]) is None


def states_and_events_survive_being_written_and_read(story: Story) -> None:
    brief = ""
    grown: dict[str, list[str]] = {}
    for change, commit in zip(entries(story), commits_of(story), strict=True):
        brief = journal.encode_brief(commit.brief) if commit.brief else brief
        for growth in commit.growth:
            grown[growth.field] = [*grown.get(growth.field, [])[growth.dropped :], *growth.added]
        assert commit.entry.decoded() == change.event
        if commit.entry.seq % 5 == 0:
            items = [(field, item) for field, some in grown.items() for item in some]
            assert journal.decode_state(journal.encode_state(commit.state), brief, items) == commit.state


def what_is_said_is_what_its_model_would_write_byte_for_byte(story: Story) -> None:
    for one in (message for change in story for message in change.messages):
        kind = subjects.TOOL_REQUEST if one.subject.startswith(subjects.TOOL_REQUEST) else one.subject
        body = to_json({"type": one.subject, "payload": one.payload, "dedupe_key": one.key})
        assert envelope_of(kind).model_validate_json(body).body() == body


def what_is_said_again_was_said_before_word_for_word(story: Story) -> None:
    said = {one.key: one for change in story for one in change.messages}
    for change in story:
        for again in messages.outstanding(after(change)):
            assert after(change).status is Status.QUEUED or said[again.key] == again
