"""Sentences about a run. The core uses them as values, so wording is no rule; this module words them. Pure.

A sentence is worded when it is shown, and when an error becomes a result for the model.
"""

import re
from dataclasses import field
from datetime import datetime
from functools import cache
from typing import Any

from schemas.values import dataclass


@dataclass(frozen=True, slots=True)
class Sentence:
    name: str
    values: "dict[str, str | int | float | Sentence | tuple[str | Sentence, ...] | None]" = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, *self.values))

    def __str__(self) -> str:
        """A sentence of another version is told by its name and values."""
        form, values, text = FORMS.get(self.name), dict[str, Any](self.values), ""
        for name, value in self.values.items():
            if isinstance(value, Sentence):
                values[name] = str(value)
            elif isinstance(value, tuple):
                values[name] = "; ".join(map(str, value))
        if form is None:
            return f"{self.name}: {values}"
        for part, needed in _parts(form):
            if all(map(values.get, needed)):
                text += part.format_map(values)
        return text


Text = str | Sentence
"""A string is the literal text of a model, a tool or a person. `str()` words both."""
Value = int | float | Text | tuple[Text, ...] | None


def say(name: str, /, **values: Value) -> Sentence:
    return Sentence(name, values)


def instant(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


OPTIONAL, _NAMED = re.compile(r"\[([^\]]*)\]"), re.compile(r"\{(\w+)")
"""A part in brackets is left out if its value is empty."""


@cache
def _parts(form: str) -> list[tuple[str, list[str]]]:
    """Each part with the names of the values that it needs."""
    parts = enumerate(OPTIONAL.split(form))
    return [(part, _NAMED.findall(part) if place % 2 else []) for place, part in parts if part]


_DOUBT = "whether step {step} ({tool}) was carried out is not known"

FORMS = {
    # ignored events
    "no_such_run": "no such run",
    "begun_already": "it has begun already",
    "call_not_awaited": "model call {call} is not the one waited for",
    "not_due": "nothing is due",
    "has_ended": "the run has ended ({status})",
    "signal_known": "signal {signal} was heard already",
    "stands_still_already": "its time stands still anyway, while it waits for a person or for money",
    "stop_known": "it has heard of that already, or was accepted afterwards",
    # summaries of a run
    "accepted": "accepted",
    "framed": "framed: {goal}",
    "asks": "asks: {question}",
    "waits_until": "waits until {until}: {why}",
    "waits_for_approval": "waits for approval: {why}",
    "model_unavailable": "model unavailable: {why}",
    "acts": "{actions}",
    "act": "step {step}: {tool} {command}[ (attempt {again})]",
    "retries": "step {step}[ ({task})]: {tool} failed ({error_class}), attempt {attempt} follows",
    "step_ended": "step {step}: {tool} {status}",
    "task_came": "step {step}: {task} {status}",
    "asks_for_more": "step {step}: {tool} asks for more: {wish}",
    "gathers": "[{news}; ]asks {asked}",
    "gathering_stopped": "step {step}: {why}",
    "reply_discarded": "the reply was discarded, because a person wrote meanwhile",
    "done_refused": "`done` was refused[: {why}]",
    "stood_still": "goes on: everything was stopped by {by}[ ({reason})]",
    "reopened": "reopened by an answer",
    # sources of untrusted content
    "the_request": "the request itself",
    "the_message": "the message {signal}",
    "step_of": "step {step} ({tool})",
    # budgets
    "tokens_spent": "{taken} of {most} tokens are spent[, and the next model call may need {need}]",
    "cost_spent": "{taken:.4f} of {most:.4f} USD are spent[, and the next model call may cost {need:.4f}]",
    "price_unknown": "the model's price is not known, so a limit of {most:.4f} USD cannot be kept: "
    "set agent.model.price, or wake without max_cost_usd",
    "steps_used": "all {most} steps are used and the goal is not met",
    "attempts_used": "all {most} tool attempts of the run are used",
    "reframes_used": "all {most} reframes are used",
    "deadline_passed": "the deadline {deadline} has passed",
    "raise_to_go_on": "{reason}; raise the budget to go on",
    "raise_with_answer": "{why}: raise {limit} with the answer",
    # reasons of an end or a stop
    "model_unheard": "the model fell silent, or could not be read, {times} times in a row, and each time it may have "
    "been paid for: {why}; raise agent.model.timeout_s, lower max_tokens or the effort, or correct base_url or the "
    "provider, then resume the run",
    "model_refused": "the model refused to answer ({category})[: {why}]",
    "no_usable_decision": "the model gave no usable {phase} in {tries} tries: {flaws}",
    "stuck": "the same call of {tool} brought the same result three times, and was planned again",
    "done_claimed": "`done` was claimed {times} times: {flaws}",
    "unanswered": "not answered in time: {question}",
    "approval_expired": "not approved in time: {why}",
    "refused_in_a_row": "{times} times in a row: {why}",
    "failed": "step {step}[ ({task})]: {tool} failed ({error_class}[, job {job}]): {message}",
    "failed_for_good": "{what} (attempt {attempt}, the last)",
    # ignored results
    "which": "step {step}[ attempt {attempt}]",
    "came_late": "result of {which} came after the run ended ({status})",
    "step_finished": "step {step} is finished already",
    "nothing_pending": "result of {which}, but nothing is pending",
    "from_the_future": "result of {which} is from the future: step {pending} is pending",
    "task_never_asked": "result of {which} is of {task}, which was never asked for",
    "message_answered": "the same message answered an earlier request of step {step}",
    "answers_none": "it answers {count} of the requests of step {step} that are out: name one, by `task` and `round`",
    "other_tool": "result of {which} is from tool {tool}, but {pending} is pending",
    "attempt_given_up": "attempt {attempt} was given up: it is attempt {now} now",
    "attempt_never_sent": "attempt {attempt} of step {step} was never sent",
    "no_capability": "a result of {tool} for step {step} does not bring the capability of its request: it counts for "
    "nothing; executors must bring back what the request holds as `capability`",
    # ignored signals
    "too_many_signals": "it has heard {most} signals, and hears no more: what is to be added is for a new run",
    "no_approval_awaited": "nothing waits for an approval",
    "no_answer_awaited": "no question waits for an answer: a message is heard at any time",
    "answer_needs_message": "it waits for an answer to its question, which needs a message",
    "awaits_approval": "it waits for an approval: approve it, reject it, or send a message",
    "answer_of_other": "what this answers is not asked any more",
    "approved_too_late": "it could be approved until {until}",
    "approval_of_other": "what waits for approval has arguments_hash {hash}[ and is step {step}]: name that",
    "answer_reopens": "the run has ended ({status}): an answer reopens it",
    "answer_without_message": "an answer needs a message",
    "was_a_step": "it was step {step} of run {run}, which has its result: say it to that one",
    "reopened_too_late": "the run was handed over more than {days:g} days ago: ask for a new one",
    "outcome_unclear": "an outcome settles one write in doubt, and there are {count}: answer without an outcome",
    # reasons to ask a person
    "always_asked": "{tool} {command} is carried out only when a person allows it",
    "leaves_the_house": "may act outside this system",
    "address_unnamed": "asks {hosts} for an address that neither goal, context, a person nor a link of a result names",
    "address_tells": "may tell {hosts} in the address what this run knows from elsewhere",
    "tainted": "{tool} {command} {why}, and {tainted_by} brought untrusted content",
    "framing_beyond": "the new framing names {names}, which was not asked for, and {tainted_by} brought "
    "untrusted content",
    "the_tool": "the tool {tool}",
    "asked_because": "{why}; {asked}",
    "asked_again": "{tool} is to be asked again with what it asked for",
    "tool_asks": "{tool} asks for it[, and says: {why}]",
    "not_approved": "{what} was not approved ({verdict})[: {why}]",
    "nobody_decided": "no decision in time",
    "new_framing": "the new framing",
    "this_framing": "this framing",
    "these_arguments": "{tool} {command} with these arguments",
    # feedback to the model
    "same_result": "this action has brought this same result three times: choose another, or end the run",
    "said_newer": "a person said something newer",
    "reply_outrun": "a person wrote while you were answering, so that answer was discarded",
    "plan_void": "what was planned is not carried out, because a person said something newer",
    "spoke_meanwhile": "a person spoke while your question waited, which may answer it or not",
    "was_answered": "your question was answered",
    "waited": "you have waited since {since} UTC: {why}",
    "wait_over": "the wait is over, because a person said something",
    "goes_on_with_answer": "the run was handed to a person ({ending}), and goes on with what they answered",
    "reframe": "reframe: {why}",
    "framing_unseen": "the new framing is not in force, as it was not reviewed ({why}): go on with the one before",
    "framing_refused": "the new framing was refused: {why}",
    "framing_stands": "what was framed before is in force: go on with it, frame what serves the goal, or escalate",
    "done_rejected": "`done` was rejected by the verifier: {why}",
    "item_open": "item {item} is still open: {text}",
    "item_reopened": "item {item} is open again: {text}",
    # flaws of a framing
    "framing_shape": "a framing needs a goal_statement and {least} to {most} items, none blank, each with a proof",
    "proof_tool_unknown": "a proof names the tool {tool!r}, which is not on offer: {offered}",
    "proof_without_tool": "item {number} of definition_of_done is shown by a `value`: name the tool in whose result it "
    "will stand",
    # flaws of a plan
    "wrong_phase": "the reply is no decision of phase {phase}",
    "tool_unknown": "tool {tool!r} is not on offer; the tools are: {offered}",
    "command_unknown": "tool {tool} has no command {command!r}; it has: {commands}",
    "artifact_unknown": "{argument}: the run has no artifact {path!r}; the newest are: {newest}",
    "too_deep": "tool {tool} would start an agent from an agent, which is not allowed",
    "too_many_agents": "{asked} agents are asked for, and at most {most} may work at the same time",
    "do_it_yourself": "{why}: do it yourself, or end",
    "too_little_left": "too few steps, or too little of its tokens or money, are left for another agent",
    "too_many_actions": "the plan has {planned} actions, and at most {most} may be planned now",
    "planned_alone": "{tool} {command} has to be planned alone: {why}",
    "no_read": "it is no read",
    "same_action_twice": "the plan has the same action twice",
    "look_first": _DOUBT + ": look first, with {reads} of {tool}",
    "ask_first": _DOUBT + ": ask a person first, with the choices `It ran` and `It did not run`",
    "wait_needs_one": "wait needs one of seconds and until, and until its time zone, such as Z for UTC",
    "wait_when": "the wait must take {least:g} s or more, and end before the deadline {deadline}; it is {now}",
    "waits_too_often": "you have waited {times} times since the newest step: look at something, ask, or escalate",
    "questions_used": "all {most} questions are asked: decide without an answer, or escalate",
    "question_shape": "a question needs words, and at most {most} choices, none of them blank",
    # flaws of a claim
    "item_unknown": "there is no item {item}",
    "quote_needed": "item {item} needs a quote: some words of {place} that show it",
    "quote_missing": "the quote for item {item} does not stand in {place}[ ({why})]: quote it word for word",
    "evidence_missing": "evidence {evidence!r} for item {item} does not exist[: step {failed} ended with an error]",
    "evidence_unfit": "item {item} is shown by {proof}, and {place}[ ({tool})] is none",
    "shown_by_step": "a step[ of {tool}] that ended ok",
    "shown_by_artifact": "an artifact of the run",
    "shown_by_value": "a value in a result[ of {tool}]",
    "shown_by_person": "what a person said",
    # continuations
    "continuations_used": "all {most} continuations of a step are used, and {tool} asks for more: {wish}",
    "gathering_over": "the {most} ms are over in which a step may gather what its tool asks for",
    "never_continues": "{tool} says of itself that it never asks for more (`continues: false`)",
    "continuation_unread": "what it asks for cannot be read: {why}",
    "continuation_flawed": "what it asks for cannot be done: {flaws}",
    "too_many_tasks": "it asks for {asked} tasks, and at most {most} are taken at once",
    "flaw_of_task": "{task}: {flaw}",
    "no_retrieval": "it asks for a retrieval, and no tool {tool} is on offer (agent.continuations.retrieval_tool)",
    "all_of": "{flaws}",
    "dependency_failed": "it depends on {tasks}, which failed",
    "gathered_so_far": "{why}. It has not answered; what was gathered so far is here",
    "wishes_tasks": "{count} tasks ({tasks})",
    "wishes_retrieval": "retrieve {query!r}",
    # errors instead of a result
    "answer_dropped": "an answer may have been dropped as a repetition while the agent was away: its executor names no "
    "attempts",
    "no_result": "no result by {deadline}; whether the tool ran is not known",
    "no_reason": "no reason given",
    "malformed_continuation": "the tool asks for more evidence before it can answer",
    "was_carried_out": "a person says that it was carried out",
    "not_carried_out": "a person says that it was not carried out.[ {message}]",
    "carried_out_unknown": "whether it was carried out is not known.[ {message}]",
    "request_too_large": "its arguments have {size} bytes with what is handed on, and {most} are sent",
}
