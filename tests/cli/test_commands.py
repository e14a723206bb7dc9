"""Output and exit codes of the commands on runs, as kept in golden/, against an API in this process.

test_live_runs.py has what needs a working agent.
"""

import os
import pwd
import re
from collections.abc import AsyncIterator, Callable
from errno import ENOSPC
from pathlib import Path

import pytest

from groundwork.service.errors import Broken, Exit, Misconfigured, NoRoom, NotDone, complaint_of
from schemas import subjects
from tests.cli.invoke import Called, called
from tests.http.house import House, open_house, serving, with_a_letter, with_a_question
from tests.kit.runs import run_id, stopped, whole_run

AGO = re.compile(r"\b\d{3,}:\d\d:\d\d\b| +\d+ d$")
"""Ages of things in progress, which depend on the clock."""
DONE, LETTER, QUESTION, STOPPED, WAITS, PAUSED = (run_id(number) for number in range(11, 17))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path, tokens=()) as house:
        for commits in (
            *(whole_run(11), with_a_letter(12), with_a_question(13), stopped(14)),
            *(whole_run(15, steps=2)[:4], stopped(16, "pause")),
        ):
            await house.play(commits)
        house.letters.put(b'{"goal": ""}', Reason="constraints: too much", Stream="AGENTIC_STARTS", Sequence="7")
        house.letters.put(b"\x1b[2J\xff", subject=subjects.TOOL_RESULT, run_id=DONE, Reason="\x1b[31mred")
        house.workspace.write(DONE, {"plan.md": b"# Plan\n", "artifacts/a.txt": b"a\n"})
        yield house


async def transcript(house: House, lines: str) -> str:
    """Output and exit code of each command line, without text that depends on clock and user."""
    me, parts = pwd.getpwuid(os.getuid()).pw_name, []
    async with serving(house.app) as port:
        url = f"http://127.0.0.1:{port}"
        for line in lines.strip().splitlines():
            ended = await called(*words(line), AGENTIC_URL=url, COLUMNS="100")
            parts.append(f"$ agentic {line}\n{ended.out}{ended.err}({ended.code})\n")
    text = "\n".join(parts).replace(f"os user {me}", "os user ME").replace(url, "URL")
    text = re.sub(r"\[Errno \d+\] [^)]*", "…", text)
    told = [AGO.sub("…", one).rstrip(" │") if AGO.search(one) else one for one in text.splitlines()]
    return "\n".join([*told, ""])


def words(line: str) -> list[str]:
    return [word.strip("'") for word in re.findall(r"'[^']*'|\S+", line)]


LOOKING = f"""
runs
runs --status done --status escalated --tool search
runs --text nothing
runs --limit 2
runs --since 2099-01-01T00:00:00Z
runs --since yesterday
runs --since 2026-12-24
runs --since 999999w
runs --since 2026-11-21T12:00:00Z --until 2026-11-21T12:00:00Z
show {DONE}
show {STOPPED}
show {DONE} --step 1
show {DONE} --step 9
show --watch {DONE}
show --watch {STOPPED}
prompt {DONE} --call 9
inbox
why {DONE}
tail {DONE}
tail {STOPPED}
tail --after 4 {DONE}
entries {DONE}
entries --after 4 {DONE}
cat {DONE}
cat {DONE} plan.md
cat {DONE} ../../../../healthz
show {DONE[:-1]}
show 01
why 16
show {run_id(9)}
"""
ACTING = f"""
reject {LETTER} --reason 'not to Ann'
reject {LETTER}
answer --hash 00000000000000000000000000000000 {QUESTION} 'the attic'
answer {QUESTION} 'the cellar'
answer --max-steps 15 {STOPPED} 'look once more'
answer {DONE} 'more!'
approve {QUESTION}
signal {PAUSED} resume
signal {WAITS} message --message 'hurry'
signal {WAITS} message
signal {WAITS} raise_budget
cancel {WAITS}
cancel {DONE}
dismiss {DONE}
cancel run_0
wake 'another' --wake-id w-1
wake 'something else' --wake-id w-1
wake 'no name' --wake-id ''
stop-all --dry-run
stop-all --reason 'a test'
go-on
drain --dry-run
prune --dry-run
dlq ls
dlq show 1
dlq retry --dry-run 1
dlq retry 1
dlq retry 1
dlq drop 2
dlq show 9
dlq ls
dlq ls --all --limit 1
"""
WRONG = """
wake
wake --max-steps 0 x
wake --context [1] x
wake --context '{"cost":NaN}' x
wake --max-cost-usd nan x
run --max-cost-usd inf x
answer --max-cost-usd -inf last x
signal run_1 shout
show ../../etc
show ..
runs --status odd
runs --cursor bogus
tail --after 3
nonsense
runs --url 'no address'
answer last
answer --ran --look last
approve --step 0 last
runs --url http://127.0.0.1:1
tail --url http://127.0.0.1:1
show --watch --url http://127.0.0.1:1 last
"""


@pytest.mark.parametrize(("name", "lines"), [("looking", LOOKING), ("acting", ACTING), ("wrong", WRONG)])
async def test_each_command_prints_and_ends_as_is_kept(
    house: House, name: str, lines: str, golden: Callable[[str, str], None]
) -> None:
    golden(f"commands-{name}", await transcript(house, lines))


JSON = f"""
runs
show {DONE}
show {DONE} --step 1
prompt {DONE}
inbox
why {WAITS}
approve {LETTER}
answer {QUESTION} x
cancel {WAITS}
dismiss {STOPPED}
wake x
"""


async def test_with_json_a_command_prints_one_document_and_a_journal_one_a_line(house: House) -> None:
    async with serving(house.app) as port:

        async def ended(line: str) -> Called:
            return await called(*words(line), "--json", AGENTIC_URL=f"http://127.0.0.1:{port}")

        for line in JSON.strip().splitlines():
            told = await ended(line)
            assert (told.code, told.err, isinstance(told.document, dict)) == (0, "", True), (line, told)
        whole = await ended(f"entries {DONE}")
        assert [entry["seq"] for entry in whole.documents] == [1, 2, 3, 4, 5, 6]
        assert (await ended(f"tail {DONE}")).out == whole.out
        for follow in ("entries", "tail"):
            assert (await ended(f"{follow} --after 4 {DONE}")).documents == whole.documents[4:]
        refused = await ended(f"show {DONE} --step 9")
        assert (refused.code, refused.out, refused.error["code"]) == (5, "", "unknown_step")


def test_every_error_of_ours_has_its_code_also_deep_in_a_task_group_and_a_fault_of_ours_has_none() -> None:
    for error, code in (
        (NotDone("no", Exit.NOT_FOUND), Exit.NOT_FOUND),
        (Broken("no"), Exit.FAILED),
        (NoRoom("no"), Exit.TRY_AGAIN),
        (PermissionError(13, "no", "/etc/x"), Exit.MISCONFIGURED),
        (OSError(ENOSPC, "no space"), Exit.FAILED),
    ):
        for told in (error, ExceptionGroup("tasks", [ExceptionGroup("more", [error])])):
            complaint = complaint_of(told)
            assert complaint is not None
            assert (complaint.exit_code, "no" in str(complaint)) == (code, True)
            assert ("run this as the user" in str(complaint)) == isinstance(error, PermissionError)
    for fault in (KeyError("x"), ExceptionGroup("tasks", [Misconfigured("a"), KeyError("x")])):
        assert complaint_of(fault) is None
