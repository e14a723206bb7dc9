"""The commands on runs, against everything that `agentic dev` starts."""

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.calling import COMMAND, ROOT, agentic_here, clean, interrupt, started
from tests.cli.dev_stack import Dev
from tests.kit.waiting import wait_until

SOME_RUN = "run_00000000000000000000000000"


@pytest.fixture
def staying(dev: Dev) -> Iterator[str]:
    """A run that waits for its model; cancelled at the end."""
    run_id = dev("wake", "stay").out.strip()
    wait_until(lambda: (dev("show", "--json", run_id).document["waiting_for"] or {}).get("kind") == "model")
    yield run_id
    dev("cancel", run_id)


def test_run_waits_for_the_end_and_shows_it(dev: Dev) -> None:
    called = dev("run", "say it back")
    assert called.code == 0
    assert called.err.startswith("accepted: run_")
    for text in (
        "done",
        "say it back",
        "It is answered.",
        "echo handle",
        "1 of 10",
        "3 model calls (script:cli-tests)",
    ):
        assert text in called.out


@pytest.mark.parametrize(("goal", "code"), [("fail", 1), ("escalate", 3)])
def test_the_exit_code_says_how_the_run_ended(dev: Dev, goal: str, code: int) -> None:
    called = dev("run", "--json", goal)
    assert (called.code, called.err) == (code, "")
    assert called.document["status"] == {1: "failed", 3: "escalated"}[code]


def test_limits_and_context_reach_the_run(dev: Dev) -> None:
    deadline = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0).isoformat().replace("+00:00", "Z")
    limits = ("--max-steps", "4", "--max-tokens", "900", "--max-cost-usd", "0.5", "--max-reframes", "1")
    view = dev.run("say it back", *limits, "--deadline", deadline, "--context", '{"tone": "warm"}', "--untrusted")
    budget = view["budget"]
    assert [budget[name] for name in ("max_steps", "max_tokens", "max_cost_usd", "max_reframes")] == [4, 900, 0.5, 1]
    assert budget["deadline_at"] == deadline
    first = dev("entries", "--json", view["run_id"]).documents[0]
    assert (first["event"]["context"], first["event"]["untrusted"]) == ({"tone": "warm"}, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("wake",),
        ("wake", "--max-steps", "0", "x"),
        ("wake", "--context", "[1]", "x"),
        ("signal", "run_1", "shout"),
        ("show", "../../etc"),
        ("show", ".."),
        ("runs", "--status", "odd"),
        ("runs", "--cursor", "bogus"),
        ("tail", "--after", "3"),
        ("nonsense",),
        ("runs", "--url", "no address"),
        ("runs", "--token", "two\nlines"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line_with_code_2(arguments: tuple[str, ...]) -> None:
    called = agentic_here(*arguments)
    assert called.code == 2
    assert called.out == ""
    assert called.err.startswith("agentic: ")
    assert len(called.err.splitlines()) == 1
    assert "two" not in called.err


def test_no_agent_is_code_69_with_the_remedy() -> None:
    called = agentic_here("runs", "--json", "--url", "http://127.0.0.1:1")
    assert (called.code, called.error["code"]) == (69, "unreachable")
    assert "agentic dev" in called.error["message"]


def test_a_run_is_named_by_the_beginning_of_its_id_and_the_newest_by_last(dev: Dev) -> None:
    run_id = dev.run("say it back")["run_id"]
    for name in ("last", run_id[:-1], run_id.removeprefix("run_")[:-1]):
        assert dev("show", "--json", name).document["run_id"] == run_id
        assert dev("verify", "--json", name).document["run_id"] == run_id
    dev.run("say it back")
    refused = dev("cancel", "--json", "run_0")
    assert (refused.code, refused.error["code"]) == (2, "ambiguous_run")
    assert run_id in refused.error["message"]
    assert dev("verify", "--json", "run_0").error["code"] == "ambiguous_run"


def test_cat_lists_the_files_of_a_run_and_prints_each_as_it_is(dev: Dev, done: dict[str, Any]) -> None:
    assert dev("cat", done["run_id"], "context.md").out.startswith("# Context")
    deadline = datetime.now(UTC) + timedelta(seconds=20)
    while dev("verify", done["run_id"]).code:  # until all is written
        assert datetime.now(UTC) < deadline
    for path in ("memory.md", "trace.jsonl"):
        assert dev("cat", done["run_id"], path).out == (dev.folder / "workspaces" / done["run_id"] / path).read_text()
    assert {"memory.md", "trace.jsonl"} <= set(dev("cat", done["run_id"]).out.split())
    assert dev("cat", done["run_id"], "../../../../healthz").code == 5


def test_entries_and_tail_print_each_entry_once_and_in_order(dev: Dev, done: dict[str, Any]) -> None:
    entries = dev("entries", "--json", done["run_id"])
    assert [entry["seq"] for entry in entries.documents] == list(range(1, 7))
    assert dev("tail", "--json", done["run_id"]).out == entries.out
    after_4 = "\n".join(entries.out.splitlines()[4:]) + "\n"
    assert dev("tail", "--json", "--after", "4", done["run_id"]).out == after_4
    assert dev("entries", "--json", "--after", "4", done["run_id"]).out == after_4


def test_runs_are_found_by_several_states_text_tool_and_age(dev: Dev, done: dict[str, Any]) -> None:
    failed = dev.run("fail")["run_id"]

    def found(*asked: str) -> set[str]:
        return {line["run_id"] for line in dev("runs", "--json", "--limit", "200", *asked).document["runs"]}

    assert {failed, done["run_id"]} <= found("--status", "failed", "--status", "done", "--since", "2h")
    assert failed not in found("--tool", "echo")
    assert done["run_id"] in found("--tool", "echo")
    assert found("--text", failed.lower()) == {failed}
    assert found("--since", "2099-01-01T00:00:00Z") == set()
    assert dev("runs", "--since", "yesterday").code == 6


def test_a_step_and_a_model_call_are_shown_in_full(dev: Dev, done: dict[str, Any]) -> None:
    step = dev("show", done["run_id"], "--step", "1")
    assert step.out.startswith(f"step 1 of {done['run_id']}: echo handle\n")
    assert "message: say it back\n" in step.out
    assert dev("show", done["run_id"], "--step", "1", "--json").document["arguments"] == {"message": "say it back"}
    assert dev("show", done["run_id"], "--step", "9", "--json").error["code"] == "unknown_step"
    call = dev("prompt", done["run_id"])
    assert call.out.startswith(f"call 3 of {done['run_id']}: reflect")
    assert dev("prompt", done["run_id"], "--call", "1", "--json").document["phase"] == "frame"
    assert dev("prompt", done["run_id"], "--call", "9", "--json").error["code"] == "unknown_call"


def test_why_and_the_doctor_say_where_a_run_stands_and_what_it_waits_for(dev: Dev, staying: str) -> None:
    for told in (dev("why", staying).out, dev("doctor", "--run", staying).out):
        assert "the reply to model call 1 (frame), since" in told
    assert dev("why", "--json", staying).document["waiting_for"]["kind"] == "model"
    assert dev("doctor", "--json", "--run", SOME_RUN).code == 5


def test_what_escalated_is_in_the_inbox_until_it_is_dismissed(dev: Dev) -> None:
    run_id = dev.run("escalate")["run_id"]
    assert f"agentic dismiss {run_id}" in dev("inbox").out
    assert dev("dismiss", "--json", run_id).document["run_id"] == run_id
    assert run_id not in {item["run_id"] for item in dev("inbox", "--json").document["items"]}
    assert dev("dismiss", dev.run("fail")["run_id"]).code == 6


@pytest.mark.parametrize("command", [("tail",), ("show", "--watch")])
def test_ctrl_c_leaves_and_the_run_goes_on(dev: Dev, staying: str, command: tuple[str, ...]) -> None:
    with started(*command, staying, AGENTIC_URL=dev.url) as process:
        stream = process.stdout if command == ("tail",) else process.stderr
        assert stream
        assert stream.readline()
        interrupt(process)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "the run goes on" in err
    assert "Traceback" not in err
    assert dev("show", "--json", staying).document["status"] == "running"


def test_a_reader_that_goes_away_is_no_error(dev: Dev, done: dict[str, Any]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        called = subprocess.run(
            [*COMMAND, "entries", "--json", done["run_id"]],
            env=clean({"AGENTIC_URL": dev.url}),
            cwd=ROOT,
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (called.returncode, called.stderr) == (141, "")


def test_nothing_hostile_reaches_the_terminal(dev: Dev) -> None:
    called = dev("run", "--watch", "hostile \x1b]0;title\x07 \u202e\x9b31m goal")
    assert called.code == 0
    shown = dev("show", called.err.split()[1]).out + dev("runs").out + called.out + called.err
    assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e", "\u202c", "\u2066", "\u2069"}
    assert "␛]0;title␇" in shown
