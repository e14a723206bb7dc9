"""Selects the tests of a push: `pytest --push`, which is `make test`. `make nightly` runs all of them.

A push takes every test that needs none of our processes. Of those in `REAL`, which start the real program (or a
browser, a container, a Ductile) or play thousands of worlds or stories, it takes one choice per ability: `CHOSEN`.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOM = Path(__file__).parent

SEVERAL = "test_all_take_their_part_each_call_is_run_once_and_those_of_a_machine_that_died_are_in_doubt"

REAL = (
    "accounts/test_roles.py",
    "attacks",
    "browser",
    "cli/test_backups.py::test_a_killed_backup_costs_none_before_it_and_no_agent_begins_on_the_store_of_a_killed_restore",
    "cli/test_live_runs.py",
    "core/test_mutants.py",
    "deploy/test_machine.py",
    "deploy/test_operators_story.py",
    "ductile/test_gateway.py",
    "ductile/test_guide_commands.py",
    "ductile/test_parity.py",
    "e2e",
    "evaluation/test_eval_command.py",
    "examples",
    "executors/test_shipped.py",
    "gateway/plugins/test_authoring.py",
    f"gateway/test_serving.py::{SEVERAL}",
    "lab",
    "peers",
    "sim/test_bugs.py",
    "sim/test_sometimes.py",
    "telemetry/test_whole_traces.py",
    "test_documented_commands.py",
)

KILLED = "test_a_process_killed_while_a_tool_runs_costs_no_run_and_repeats_no_write"
RESTORED = "test_runs_go_on_from_a_backup_and_no_write_that_may_have_been_done_since_is_repeated[sqlite]"

AWAY = "test_a_gateway_says_what_it_waits_for_and_offers_nothing_until_its_ductile_is_there"

CHOSEN = {
    "a run from goal to end, with its paper trail": [
        "e2e/test_stack.py::test_the_worked_example_ends_with_a_critique_and_a_paper_trail",
    ],
    "one run per wake": ["e2e/test_stack.py::test_a_hundred_wakes_of_one_name_are_one_run"],
    "cancel": ["e2e/test_stack.py::test_a_cancel_ends_a_run_within_two_seconds_while_a_tool_runs"],
    "one agent per store and bus": [
        "e2e/test_stack.py::test_a_second_agent_on_the_same_store_refuses_to_start",
        "e2e/test_kills.py::test_an_agent_of_the_same_store_takes_over_in_the_middle_of_a_run_which_goes_on_once",
    ],
    "kill -9 of each process": [
        f"e2e/test_kills.py::{KILLED}[_agent]",
        f"e2e/test_kills.py::{KILLED}[_gateway]",
        f"e2e/test_kills.py::{KILLED}[_nats]",
    ],
    "a first tool": [
        "gateway/plugins/test_authoring.py::test_what_is_made_passes_the_check_and_answers_a_call[python]"
    ],
    "continuation": ["e2e/test_stack.py::test_the_plugin_in_python_answers_from_what_it_asked_for"],
    "kill switch": ["e2e/test_kills.py::test_nothing_begins_until_somebody_lets_it_go_on_also_after_kills"],
    "drain": ["e2e/test_kills.py::test_a_model_call_under_way_is_waited_for_and_the_run_goes_on_after_the_next_start"],
    "power loss": [
        "e2e/test_disks.py::test_what_the_bus_forgot_is_said_again_and_every_run_completes[everything loses power]"
    ],
    "backup and restore": [
        "e2e/test_disks.py::" + RESTORED,
    ],
    "several agents on a cluster": [
        "e2e/test_cluster.py::test_a_run_whose_agent_is_killed_while_the_model_thinks_goes_on_elsewhere",
    ],
    "several gateways": [
        f"gateway/test_serving.py::{SEVERAL}",
    ],
    "each role with an account of its own": [
        "accounts/test_roles.py::test_a_run_is_done_by_all_roles_together_and_nothing_is_denied[]",
    ],
    "the command line beside an agent": [
        "cli/test_live_runs.py::test_run_waits_for_the_end_shows_it_and_its_exit_code_says_which_it_was",
        "cli/test_live_runs.py::test_an_answer_sets_an_escalated_run_going_again_which_is_followed_to_its_next_end",
        "cli/test_live_runs.py::test_why_says_where_a_run_stands_and_what_it_waits_for",
    ],
    "signed writes": ["e2e/test_stack.py::test_a_run_writes_and_who_may_publish_requests_does_not"],
    "the nats tool": ["test_documented_commands.py::test_the_page_on_the_bus_holds_line_by_line"],
    "executors of others": [
        "executors/test_shipped.py::test_each_answers_what_is_asked_of_it_beside_the_others_and_the_gateway",
        "executors/test_shipped.py::test_a_request_waits_while_it_is_away_and_no_foreign_message_holds_it_up",
    ],
    "forged results": [
        "attacks/test_results.py::test_strike[a result of the pending step-ours]",
        "attacks/test_results.py::test_strike[a result of the pending step-twin]",
    ],
    "the boundary of plugins": [
        "attacks/test_plugins.py::test_the_box_lets_a_plugin_do_its_work",
        "attacks/test_plugins.py::test_each_boundary_keeps_a_plugin_from_what_belongs_to_the_services",
    ],
    "a Ductile wakes the agent": [
        "e2e/test_stack.py::test_a_ductile_whose_job_comes_again_wakes_the_agent_once",
    ],
    "a Ductile that is away": [
        f"ductile/test_gateway.py::{AWAY}[fake]",
        "ductile/test_gateway.py::test_one_of_several_that_is_away_holds_up_no_call_of_the_others_and_its_own_wait_for_it[fake]",
    ],
    "the fake Ductile is as a real one": [
        "ductile/test_parity.py::test_each_request_has_the_same_answer",
        "ductile/test_parity.py::test_each_deed_of_a_plugin_ends_alike_in_job_log_and_tree[answer]",
        "ductile/test_parity.py::test_each_deed_of_a_plugin_ends_alike_in_job_log_and_tree[refuse]",
        "ductile/test_parity.py::test_of_the_flaws_of_an_event_the_first_is_named",
    ],
    "kill -9 of a gateway before a Ductile": [
        "ductile/test_gateway.py::test_after_a_kill_no_write_starts_twice_and_each_doubt_is_told[fake]",
    ],
    "one run is one trace": [
        "telemetry/test_whole_traces.py::test_a_run_with_a_crash_a_restart_and_a_retry_is_one_whole_tree",
        "ductile/test_gateway.py::test_a_call_is_told_as_its_request_to_a_ductile_and_its_job[fake]",
    ],
    "what the README shows": [
        "test_documented_commands.py::test_every_procedure_of_an_operator_is_typed_on_a_machine",
        "test_documented_commands.py::test_every_command_that_is_shown_exists_with_its_options",
        "test_documented_commands.py::test_the_story_of_the_readme_holds_over_a_kill_and_so_does_what_dev_shows",
        "test_documented_commands.py::test_the_reference_of_scripts_has_every_field",
    ],
}
"""Ability → its tests in a push. A name without parameters takes all of them, a file all of its tests."""

TESTS = [test for tests in CHOSEN.values() for test in tests]
_FILES = {test.partition("::")[0] for test in TESTS}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--push", action="store_true", help="only what a push waits for: see tests/lanes.py")
    parser.addoption("--update", action="store_true", help="write golden files anew, to be read as a diff")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skips even the import of a file that no choice names."""
    if not config.getoption("--push") or collection_path.is_dir():
        return None
    return (_is_real(_of(collection_path)) and _of(collection_path) not in _FILES) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--push"):
        return
    names = {item: _of(item.path) + item.nodeid.partition(".py")[2] for item in items}
    kept = [item for item in items if not _is_real(names[item]) or any(_is(names[item], test) for test in TESTS)]
    taken = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in taken])
    items[:] = kept


@cache
def names_of(file: Path) -> frozenset[str]:
    """Tests of a file, found without running it: without a browser those of the page are skipped."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    top = ast.parse(file.read_text(encoding="utf-8")).body
    return frozenset(made.name for made in top if isinstance(made, functions) and made.name.startswith("test_"))


def _of(path: Path) -> str:
    return path.relative_to(ROOM).as_posix() if path.is_relative_to(ROOM) else path.as_posix()


def _is_real(name: str) -> bool:
    return any(_is(name, real) for real in REAL)


def _is(name: str, test: str) -> bool:
    """True if the file or test is this one, or in this folder, file or test."""
    return name == test or name.startswith((f"{test}/", f"{test}::", f"{test}["))
