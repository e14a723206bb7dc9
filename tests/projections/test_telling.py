"""Properties that a golden history does not show: omissions, and differences between readers."""

from dataclasses import replace
from typing import get_args
from unittest.mock import Mock

from agent_service.api.runs import JournalReader
from agent_service.core import events, facts
from agent_service.history.history import History
from agent_service.history.items import handler_of
from agent_service.history.log_line import log_line
from agent_service.history.words import SENTENCES
from agent_service.models.prompts.prompt import as_text
from agent_service.run.human_tasks import open_task, remedy
from agent_service.run.journal import replay
from agent_service.run.ports import PromptText
from agent_service.views.journal import call_view
from agent_service.views.spans import spans_since_rest
from tests.core.cues import (
    POST,
    RUN_ID,
    frames,
    framing,
    plan,
    reflection,
    replies,
    returns,
    started,
    wake,
)
from tests.core.words import run_at
from tests.projections.courses import STANDING, verified
from tests.projections.fakes import Journals
from tests.projections.journals import (
    MADE,
    entries_of,
    pages_of,
    priced_example,
    second_by_second,
    worked_example,
)

TOLD_BY_OTHERS = {events.ToolReturned, events.TimerFired, events.TurnBroke, facts.ClaimsJudged, facts.Decided}
TOLD_BY_OTHERS |= {facts.CallLost, facts.Ruled, facts.LimitsRaised}
"""Facts and events without a handler: a handler of the same entry reads them."""
WORDED_BY_OTHERS = {events.ModelReplied, events.ToolReturned, events.TimerFired, facts.AttemptAnswered, facts.Ruled}
WORDED_BY_OTHERS |= {facts.Decided, facts.ClaimsJudged, facts.PersonAsked, facts.TasksAsked, facts.RequestDropped}
WORDED_BY_OTHERS |= {facts.LimitsRaised, facts.RunStanding}


def test_every_event_and_every_fact_is_heard_and_has_words_or_is_told_by_another_of_its_entry() -> None:
    kinds = {*get_args(events.Event), *get_args(get_args(facts.Fact)[0])}
    assert {kind for kind in kinds if not hasattr(History, handler_of(kind.__name__))} == TOLD_BY_OTHERS
    assert {name for name in dir(History) if name.startswith("on_")} <= {handler_of(kind.__name__) for kind in kinds}
    assert kinds - set(SENTENCES) == WORDED_BY_OTHERS


def test_words_of_goals_models_and_tools_are_never_logged_and_in_spans_only_when_they_are_asked_for() -> None:
    entries = entries_of(worked_example())
    words = ("critique", "Matt Joyce", "mattjoyce.ai", "goal_statement", "You decide")
    told = repr((spans_since_rest(entries), [log_line(change) for change in replay(entries)]))
    assert not [word for word in words if word in told]
    assert [word for word in words if word in repr(spans_since_rest(entries, content=as_text))] == [*words]


def test_arguments_are_asked_in_the_order_of_the_schema_of_their_tool() -> None:
    schema = {"type": "object", "properties": {"to": {}, "subject": {}, "text": {}}}
    (command,) = POST.commands
    post = POST.model_copy(update={"commands": (command.model_copy(update={"input_schema": schema}),)})
    run = second_by_second(
        wake(goal="tell ann", untrusted=True),
        started((post,)),
        frames(),
        replies(plan("post", text="It is up.", to="ann", at=7)),
    )
    asks = open_task(run.state)
    assert asks is not None
    assert (list(asks.arguments or {}), asks.arguments_json) == (
        ["to", "text", "at"],
        '{"to":"ann","text":"It is up.","at":7}',
    )
    assert asks.untrusted == "the request itself"


def test_a_new_framing_is_asked_for_with_all_that_it_says() -> None:
    framed = replies(replace(framing(), assumptions=("It goes to evil.example.",)))
    asks = open_task((run_at("run waiting browse ; return ; reflect reframe") >> framed).state)
    assert asks is not None
    assert "evil.example" in asks.reason
    assert "evil.example" in (asks.arguments_json or "")


def test_a_verifier_who_refused_is_told_with_the_end() -> None:
    assert "The verifier refused an earlier claim" in pages_of(entries_of(verified()))["decisions.md"]


def test_no_text_of_what_to_do_names_a_command() -> None:
    told = [found.text for course in STANDING.values() if (found := remedy(course().state))]
    assert [text for text in told if any(word in text for word in ("`", "agentic ", "--"))] == []


def test_a_call_is_shown_with_its_prompt_and_with_why_that_may_differ_from_what_was_sent() -> None:
    for script, version, note in (
        (priced_example(), MADE.prompt_hash, ""),
        (priced_example(), "of other templates", "aaaa"),
        (worked_example(model="scripted"), "never sent", "a script answered"),
    ):
        told = PromptText(system=("rules",), user=("tail",), version=version)
        call = call_view([*replay(entries_of(script))], 2, Mock(return_value=told))
        assert call
        assert call.prompt == told
        assert (note in call.prompt_note, bool(note)) == (True, bool(call.prompt_note))
        assert call.reply
        assert call.reply["usage"]["input_tokens"] > 0


def test_memory_says_a_fact_once_with_every_step_that_showed_it() -> None:
    for again, source in {
        "The page is long.": "",
        "the page is  long (steps 1 and 2)": " (steps 1 and 2)",
        "the page is long (step:1)": "",
    }.items():
        first = reflection("continue", facts=("the page is long (step:1)",))
        second = reflection("continue", facts=(again, "the page is not long"))
        script = run_at("run reflecting") >> replies(first, plan=plan()) >> returns() >> replies(second, plan=plan())
        facts = pages_of(entries_of(script))["memory.md"].split("## Learned facts\n\n")[1].split("\n\n")[0]
        assert facts.splitlines() == [f"- the page is long (step:1){source}", "- the page is not long"]


async def test_each_entry_is_read_and_folded_once_for_all_that_show_its_run() -> None:
    entries = entries_of(worked_example())
    journals = Journals(entries[:4])
    reader = JournalReader(journals)
    begun = await reader.history(RUN_ID, 4)
    journals.journals[RUN_ID] = entries
    for _ in range(3):
        history = await reader.history(RUN_ID, len(entries))
    assert (history, history.seq) == (begun, len(entries))
    assert len(journals.reads) == 2
