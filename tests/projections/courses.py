"""Journals of runs, one per ability, decided by the core; for golden histories and measurements."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent_service.core.phases import Framing, ItemClaim, ItemRetraction, Proof, Reflection, Verdict, Verification, Wait
from tests.core.cues import (
    FETCH,
    POST,
    PROOF,
    SAVE,
    SKILLS,
    a_compacting_run,
    a_gathering_run,
    a_parent,
    a_run_paused_while_waiting,
    a_task,
    approves,
    asks_agents,
    breaks,
    cancel,
    child_of,
    comes,
    comes_home,
    continues,
    digests,
    due,
    errs,
    extend_deadline,
    fails,
    frames,
    garbles,
    goes_on,
    multi_step,
    opens,
    plans,
    reflection,
    reflects,
    refuses,
    rejects,
    replies,
    reserves,
    retrieve,
    returns,
    several,
    signal,
    started,
    too_long,
    unavailable,
    wake,
)
from tests.core.script import Script
from tests.projections.journals import on, priced_example, second_by_second, two_rounds, worked_example
from tests.projections.people import QUESTION, a_run_in_doubt, a_run_that_needs_approval, answers, asked

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RAN: dict[str, Any] = {"summary": "saved", "job_id": "8f3c", "attempts": 2, "last_error": "upstream says 503", "x": "y"}
BEGUN = (started((FETCH, POST, SAVE)), frames())
DONE = reflects("done", PROOF)
READS = (wake(parallel_reads=3), *BEGUN, replies(several(*["fetch"] * 3)))


def retries() -> Script:
    """An unusable reply, an overloaded model, a tool that fails once and then times out."""
    thinking = (garbles(), frames(cost=None), unavailable("try_again"), due, plans())
    tried = (errs("upstream", retryable=True), due, due, due, returns(output=RAN))
    return second_by_second(replace(wake(max_attempts=4), traceparent=CALLER), BEGUN[0], *thinking, *tried, DONE)


def reads() -> Script:
    """Three parallel reads: the last answers first, the first fails and is retried."""
    first = (returns(step=3), errs("upstream", retryable=True, step=1))
    return second_by_second(*READS, *first, due, returns(step=2), returns(step=1), DONE)


def reads_that_wait() -> Script:
    return second_by_second(*READS, returns(step=3), errs("upstream", retryable=True, step=1))


def graph_that_waits() -> Script:
    """An untrusted page leads to a write that needs an approval."""
    tasks = (a_task("page", "browse"), a_task("mail", "post", ("page",), to="them"), a_task("later", after=("mail",)))
    return on(a_gathering_run(*tasks), comes("page"))


def graph_in_doubt() -> Script:
    """A task's write is in doubt while another task is pending and a third needs both; a person settles it."""
    run = a_gathering_run(a_task("a"), a_task("w", "post"), a_task("z", after=("a", "w")))
    return on(run, fails("w", "in_doubt"), answers("it is there", "ran"))


def graph_refused() -> Script:
    """An invalid continuation, then a valid one."""
    bad = multi_step(a_task("x", "nobody"))
    return second_by_second(
        wake(), started(SKILLS), frames(), plans(), continues(bad), goes_on(), continues(retrieve())
    )


def parent() -> Script:
    """One child completes, the other is cancelled."""
    run = on(a_parent(), asks_agents("find a name", "find another"))
    named, cancelled = child_of(run, 0), child_of(run, 1)
    return on(run, comes_home(on(named, plans(), returns(), DONE)), comes_home(on(cancelled, cancel())))


def parent_that_waits() -> Script:
    return on(a_parent(), asks_agents("find a name"))


def people() -> Script:
    """A question, a sleep, and a write that is rejected and then approved."""
    waits = replies(reflection("continue"), plan=Wait(why="the build runs", seconds=90.0))
    begun = (asked("tell Ann", untrusted=True), *BEGUN, replies(QUESTION), answers("hall"), waits, due)
    refused, allowed = rejects(message="not Ann", by="token ops"), approves(by="token ops")
    writes = (plans("post", to="ann"), refused, goes_on("post", to="bob"), allowed)
    return second_by_second(*begun, *writes, returns(), DONE)


def budget() -> Script:
    """Out of steps, and resumed in vain; after a raise the goal is reframed."""
    again = Framing(goal_statement="Write less.", definition_of_done=("one", "two", "three"), constraints=("be brief",))
    first = (wake(max_steps=1, on_budget="pause"), *BEGUN, plans(), returns(), goes_on(), signal("resume"))
    raised = signal("raise_budget", max_steps=3, max_tokens=9000)
    return second_by_second(*first, raised, returns(), reflects("reframe"), replies(again), cancel())


def cancelled() -> Script:
    """Cancelled while a tool works; its result comes late."""
    late = returns(output={"summary": "saved", "job_id": "j1"})
    return second_by_second(wake(), *BEGUN, plans(), cancel(by="token ops"), late)


def escalated() -> Script:
    """A message outdates a decision of the model; the next decision escalates."""
    outrun = replies(reflection("done", PROOF), words=0)
    said = signal("message", message="not yet")
    return second_by_second(wake(), *BEGUN, plans(), returns(), reserves(), said, outrun, reflects("escalate"))


def proof() -> Script:
    """Claims of another kind than fixed are refused; a second model doubts one of the others."""
    items = ("the price is known", "the report is kept", "it is told")
    proofs = (Proof(kind="value", tool="fetch"), Proof(kind="artifact"), Proof(kind="step"))
    framed = Framing(goal_statement="Report the price.", definition_of_done=items, proofs=proofs)
    brought = {"summary": "the price is 12", "artifact_path": "artifacts/report.md"}
    met = (ItemClaim(item="d3", evidence="step:1"), ItemClaim(item="d2", evidence="step:1", quote="kept"))
    claims = Reflection(
        verdict=Verdict.CONTINUE, summary="half of it", met=met, unmet=(ItemRetraction(item="d1"),), facts=("it is 12",)
    )
    first = (wake(), *BEGUN[:1], replies(framed), plans(), returns(output=brought))
    return second_by_second(*first, replies(claims, plan=several("save")), returns())


def verified() -> Script:
    doubt = Verification(holds=False, reason="two is not shown", doubted=("d2", "d9"))
    claimed = (wake(verify=True), *BEGUN, plans(), returns(), DONE)
    return second_by_second(*claimed, replies(doubt), DONE)


def compaction() -> Script:
    return on(a_compacting_run(), digests("page 1 has one heading", "# page 2"), too_long(), refuses("cyber", "no"))


Course = Callable[[], Script]

PLAYED: dict[str, Course] = {
    "priced": priced_example,
    "retries": retries,
    "reads": reads,
    "graph": two_rounds,
    "graph in doubt": graph_in_doubt,
    "graph refused": graph_refused,
    "parent": parent,
    "child": lambda: on(child_of(parent_that_waits()), plans(), returns(), DONE),
    "people": people,
    "in doubt": lambda: on(a_run_in_doubt(), answers("it is there", "ran"), DONE),
    "looked at": lambda: on(a_run_in_doubt(), answers("I have looked", "look")),
    "budget": budget,
    "cancelled": cancelled,
    "escalated": escalated,
    "foreign result": lambda: second_by_second(wake(), *BEGUN, plans(), returns(tool="someone")),
    "broken": lambda: second_by_second(wake(), *BEGUN, extend_deadline(), plans(), breaks()),
    "proof": proof,
    "verified": verified,
    "compaction": compaction,
}
"""Courses with a golden history."""
AFTER = dict.fromkeys(PLAYED, 3) | {"priced": 0, "retries": 0, "proof": 0, "compaction": 19}
"""Entries after which golden histories begin: until then most courses are alike."""
STANDING: dict[str, Course] = {
    "plain": worked_example,
    "reads that wait": reads_that_wait,
    "reads that were cancelled": lambda: on(reads_that_wait(), cancel()),
    "graph": two_rounds,
    "graph that waits": graph_that_waits,
    "graph approved": lambda: on(graph_that_waits(), approves(), comes("mail"), fails("later", "busy", retryable=True)),
    "graph in doubt": graph_in_doubt,
    "parent that waits": parent_that_waits,
    "approval": lambda: on(a_run_that_needs_approval()),
    "approval expired": lambda: on(a_run_that_needs_approval(), due),
    "question": lambda: second_by_second(asked("read the door"), *BEGUN, replies(QUESTION)),
    "in doubt": lambda: on(a_run_in_doubt()),
    "paused with a tool out": a_run_paused_while_waiting,
    "no model": lambda: second_by_second(wake(), BEGUN[0], opens(), returns(), unavailable("pause")),
    "proof": proof,
}
"""Courses with a golden standing."""
