"""What is true of every story, whatever happened in it: each rule is a function that a story passes or breaks.

The rules look at what came in and what was published, and say again, in their own way, what the core decides. Where
they look into the state, it is to hold it against what was published.
"""

from collections.abc import Callable

from tests.core.rules import deciding, endings, notes, order, people, reserves, spending, steps, verifying, waiting
from tests.core.rules.reading import Story

Rule = Callable[[Story], None]

RULES: tuple[Rule, ...] = (
    order.every_entry_counts_one_version,
    order.an_ignored_event_changes_nothing,
    order.a_status_never_goes_back_unless_an_answer_reopens_the_run,
    order.no_key_is_used_twice,
    order.no_progress_is_told_under_the_key_of_another,
    order.a_signal_is_heard_once,
    endings.a_run_ends_once_and_nothing_follows,
    endings.a_late_result_is_recorded_once,
    endings.a_cancel_ends_any_run,
    endings.a_run_is_completed_only_with_proof_of_every_item,
    steps.one_action_is_in_flight_or_several_that_only_read,
    steps.steps_count_from_one,
    steps.an_attempt_follows_the_failure_of_the_one_before,
    steps.only_what_can_be_repeated_is_tried_again,
    steps.a_finished_step_is_never_asked_for_again,
    steps.what_is_sent_is_pending_in_the_same_entry,
    steps.a_result_of_the_past_changes_nothing,
    steps.a_result_of_a_step_or_a_tool_that_was_not_asked_for_escalates,
    steps.a_result_of_an_attempt_that_was_not_asked_for_escalates,
    steps.a_result_that_cannot_be_read_changes_nothing_unless_it_is_waited_for,
    steps.the_result_that_is_waited_for_is_taken,
    steps.only_offered_commands_are_requested,
    steps.an_agent_calls_itself_only_as_deep_as_granted,
    steps.the_correlation_keys_are_ours,
    spending.no_more_steps_and_attempts_are_taken_than_granted,
    spending.the_attempts_of_the_run_are_bounded,
    spending.no_more_reframes_are_made_than_granted,
    spending.no_model_call_is_made_when_the_money_is_spent,
    spending.no_model_call_is_made_when_a_limited_cost_is_unknown,
    spending.every_paid_call_is_counted,
    spending.nothing_is_asked_at_or_after_the_deadline,
    spending.model_calls_are_bounded_by_the_limits,
    waiting.a_run_moves_as_the_table_says,
    waiting.a_live_run_has_a_timer_no_later_than_its_deadline,
    waiting.a_paused_run_asks_for_nothing,
    waiting.only_the_call_that_is_asked_is_made_and_calls_count_up,
    waiting.only_the_reply_that_is_waited_for_counts,
    waiting.a_run_is_framed_before_anything_else_is_asked,
    reserves.what_was_set_aside_and_not_answered_is_lost_once,
    reserves.no_call_is_made_that_could_break_a_limit,
    reserves.a_reserve_stands_only_while_its_call_is_being_made,
    reserves.a_reserve_is_followed_by_its_call_or_by_the_end_of_the_budget,
    deciding.only_a_plan_that_goes_with_a_good_decision_is_carried_out,
    deciding.a_framing_is_taken_up_only_when_it_was_asked_for_and_is_sound,
    deciding.facts_are_learned_only_by_reflecting_and_compacting,
    deciding.a_refusal_hands_the_run_to_a_person,
    deciding.a_plan_that_no_tool_can_help_with_hands_the_run_to_a_person,
    people.no_risky_write_follows_what_strangers_wrote_without_a_person_who_allows_it,
    people.what_was_refused_is_not_asked_for_again_until_somebody_says_more,
    people.a_write_of_unknown_outcome_is_followed_by_none_of_its_tool_before_it_was_cleared,
    people.nothing_goes_past_what_a_person_said_meanwhile,
    people.no_more_questions_are_asked_than_granted,
    verifying.a_claim_that_is_not_shown_is_refused_and_only_once,
    verifying.done_is_looked_at_where_that_is_wanted,
    verifying.what_a_person_says_voids_what_is_claimed,
    verifying.a_claim_stands_only_while_it_is_looked_at,
    notes.notes_are_only_appended_but_for_a_compaction,
    notes.a_compaction_gives_up_older_steps_and_nothing_else,
    notes.a_compaction_leaves_the_rest_of_the_run_as_it_is,
    notes.notes_are_compacted_only_when_they_are_too_long,
    notes.every_finished_step_has_one_note_with_the_thought_before_it,
    notes.what_people_said_is_a_note_for_ever,
    notes.notes_are_bounded,
    notes.notes_that_nobody_can_digest_give_way_to_the_facts,
)
