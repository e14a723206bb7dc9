"""Journals of runs, one per ability, decided by the core; for golden histories and measurements."""

from collections.abc import Callable

from agent_service.core.phases import ItemClaim, ItemRetraction, Reflection, Verdict
from tests.core.cues import approves, comes, done, due, fails, replies, returns, several
from tests.core.script import Script
from tests.core.words import STEP, run_at
from tests.projections.journals import on, priced_example, two_rounds, worked_example
from tests.projections.people import a_run_in_doubt, a_run_that_asks, a_run_that_needs_approval, answers

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RAN = '{"summary": "saved", "job_id": "8f3c", "attempts": 2, "last_error": "upstream says 503", "x": "y"}'
BEGUN = "wake ; start fetch post save ; frame"
READS = "begun parallel_reads=3 ; many fetch fetch fetch ; return step=3 ; error upstream retry step=1"
"""The last of three answers first, the first fails."""
PARENT = "wake max_depth=1 parallel_reads=4 ; start fetch post browse agent ; frame"

Course = Callable[[], Script]


def course(line: str) -> Course:
    """A second passes before each event."""
    return lambda: run_at(line, pace=1, begun=BEGUN, parent=PARENT, step=STEP)


retries = course(
    f"wake max_attempts=4 traceparent={CALLER} ; start fetch post save ; garble ; frame cost=null ;"
    f"unavailable try_again ; due ; plan ; error upstream retry ; 3x due ; return output={RAN} ; done"
)
"""An unusable reply, an overloaded model, a tool that fails once and then times out."""
graph_that_waits = course(
    'run waiting ; continue ["page browse", ["mail post page", {"to": "them"}], "later - mail"] ; come page'
)
"""An untrusted page leads to a write that needs an approval."""
graph_in_doubt = course(
    'run waiting ; continue ["a", "w post", "z - a,w"] ; fail w in_doubt ;'
    'answer "it is there" outcome=ran by="token ops"'
)
"""A task's write is in doubt while another task is pending and a third needs both; a person settles it."""
parent_that_waits = 'parent ; agents "find a name"'
verified = course(
    'begun verify=true ; plan ; return ; done ; find "two is not shown" holds=false doubted=["d2", "d9"] ; done'
)


def proof() -> Script:
    """Claims of another kind than fixed are refused; a second model doubts one of the others."""
    run = run_at(
        "wake ; start fetch post save ;"
        'frame "the price is known" "the report is kept" "it is told" proofs=["value fetch", "artifact", "step"] ;'
        'plan ; return output={"summary": "the price is 12", "artifact_path": "artifacts/report.md"}',
        pace=1,
    )
    met = (ItemClaim(item="d3", evidence="step:1"), ItemClaim(item="d2", evidence="step:1", quote="kept"))
    claims = Reflection(
        verdict=Verdict.CONTINUE, summary="half of it", met=met, unmet=(ItemRetraction(item="d1"),), facts=("it is 12",)
    )
    return on(run, replies(claims, plan=several("save")), returns())


PLAYED: dict[str, Course] = {
    "priced": priced_example,
    "retries": retries,
    "reads": course(f"{READS} ; due ; return step=2 ; return step=1 ; done"),
    "graph": two_rounds,
    "graph in doubt": graph_in_doubt,
    "graph refused": course('wake ; start ; frame ; plan ; continue ["x nobody"] ; go ; continue more'),
    "parent": course(
        'parent ; agents "find a name" "find another" ; born one ; born two 1 ;'
        "one: plan ; one: return ; one: done ; two: cancel ; home one ; home two"
    ),
    "child": lambda: run_at(
        f"{parent_that_waits} ; born it ; it: plan ; it: return ; it: done", "it", pace=1, parent=PARENT
    ),
    "people": course(
        'begun goal="tell Ann" untrusted=true ; ask "Which?" ["hall", "cellar"] tried="Both." would_change="where" ;'
        'answer hall by="token ops" ; rest 90 ; due ; plan post to=ann ;'
        'reject "not Ann" by="token ops" ; go post to=bob ; approve by="token ops" ; return ; done'
    ),
    "in doubt": lambda: on(a_run_in_doubt(), answers("it is there", "ran"), done()),
    "looked at": lambda: on(a_run_in_doubt(), answers("I have looked", "look")),
    "budget": course(
        "begun max_steps=1 on_budget=pause ; plan ; return ; go ; resume ; raise max_steps=3 max_tokens=9000 ; return ;"
        'reflect reframe ; frame one two three goal_statement="Write less." constraints=["be brief"] ; cancel'
    ),
    "cancelled": course('begun ; plan ; cancel by="token ops" ; return output={"summary": "saved", "job_id": "j1"}'),
    "escalated": course('begun ; plan ; return ; reserve ; message "not yet" ; done words=0 ; reflect escalate'),
    "foreign result": course("begun ; plan ; return tool=someone"),
    "broken": course("begun ; still ; plan ; break"),
    "proof": proof,
    "verified": verified,
    "compaction": course(
        'run reflecting max_notes=300 ; 7x step ; digest "page 1 has one heading" "# page 2" ; too-long ;'
        "refuse cyber no"
    ),
}
AFTER = dict.fromkeys(PLAYED, 3) | {"priced": 0, "retries": 0, "proof": 0, "compaction": 19}
"""Entries after which golden histories begin: until then most courses are alike."""
STANDING: dict[str, Course] = {
    "plain": worked_example,
    "reads that wait": course(READS),
    "reads that were cancelled": course(f"{READS} ; cancel"),
    "graph": two_rounds,
    "graph that waits": graph_that_waits,
    "graph approved": lambda: on(graph_that_waits(), approves(), comes("mail"), fails("later", "busy", "retry")),
    "graph in doubt": graph_in_doubt,
    "parent that waits": course(parent_that_waits),
    "approval": a_run_that_needs_approval,
    "approval expired": lambda: on(a_run_that_needs_approval(), due),
    "question": a_run_that_asks,
    "in doubt": a_run_in_doubt,
    "paused with a tool out": course("run waiting on_budget=pause ; wait 3599s ; early"),
    "no model": course("wake ; start fetch post save ; frame plan=fetch ; return ; unavailable pause"),
    "proof": proof,
}
