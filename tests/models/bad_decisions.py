"""Replies that can be read, and not be acted upon: made by hand, most of them wrong more than once."""

from tests.models.faults_of_replies import (
    COUNT,
    DONE,
    EMPTY,
    FINISH,
    FRAME,
    NO_COMMAND,
    PLANS,
    REFLECTS,
    REQUIRED,
    TWO_ITEMS,
    TYPED,
    UNCOMMANDED,
    UNKNOWN,
    UNKNOWN_TOOL,
    VERDICT,
    VERIFIES,
    WRONG,
    Bad,
    acting,
    framed,
    of_kind,
    planned,
    reflected,
    without,
    wrong,
)
from tests.models.model_house import ACTION, ASK, PLAN, REFLECTION, WAIT

CHOICES = of_kind(
    "a word that is not on the list",
    wrong(REFLECTS, VERDICT, UNKNOWN, reflection=FINISH, plan=UNKNOWN_TOOL),
    wrong(REFLECTS, VERDICT, reflection=reflected(verdict="DONE")),
    wrong(
        FRAME,
        "definition_of_done.0.proof: Input should be 'step'",
        REQUIRED,
        plan=EMPTY,
        framing=framed(definition_of_done=[{"text": "x", "proof": "page", "tool": ""}, *DONE[1:]]),
    ),
    wrong(
        FRAME,
        "names the tool 'browse', which is not on offer",
        framing=framed(definition_of_done=[{"text": "x", "proof": "step", "tool": "browse"}, *DONE[1:]]),
    ),
    Bad(
        VERIFIES,
        '{"holds": "perhaps", "reason": "x", "doubted": "d1"}',
        ("holds: ", "doubted: "),
    ),
)
UNKNOWN_NAMES = of_kind(
    "an unknown name",
    wrong(REFLECTS, "thoughts: a reply has no such part", VERDICT, reflection=FINISH, thoughts="hm"),
    wrong(FRAME, "framing.hypothesis: Extra inputs", COUNT, framing={**TWO_ITEMS, "hypothesis": "so"}),
    wrong(
        PLANS,
        "plan.tool: Extra inputs",
        "plan.command: Extra",
        "plan.actions: Field required",
        plan={**without(PLAN, "actions"), "tool": "search", "command": "query"},
    ),
    wrong(
        PLANS,
        "actions.0.arguments: Extra inputs",
        "arguments_json: Field required",
        plan=planned(actions=[{"call": "search.query", "arguments": {}}]),
    ),
    wrong(
        REFLECTS,
        "reflection.met.0.proof: Extra inputs",
        TYPED,
        plan=WRONG,
        reflection=reflected(met=[{"item": "d1", "evidence": "step:1", "proof": "x"}]),
    ),
)
CALLS = of_kind(
    "a call that there is not",
    wrong(
        PLANS,
        UNKNOWN,
        "Expecting value",
        plan=acting(call="browse.open", arguments_json="?"),
    ),
    wrong(PLANS, UNCOMMANDED, plan=NO_COMMAND),
    wrong(
        FRAME,
        "tool search has no command 'fetch'",
        COUNT,
        framing=TWO_ITEMS,
        plan=acting(call="search.fetch"),
    ),
    wrong(
        REFLECTS,
        "tool 'Search' is not on offer",
        "one may be planned",
        "has to be planned alone",
        reflection=REFLECTION,
        plan=planned(actions=[{**ACTION, "call": "Search.query"}, ACTION]),
    ),
    wrong(PLANS, "it holds no action", plan=planned(actions=[])),
)
NO_ARGUMENTS = of_kind(
    "arguments that are no JSON",
    wrong(PLANS, "Expecting property name", plan=acting(arguments_json="{'text': 'x'}")),
    wrong(
        PLANS,
        "it is no JSON object",
        UNKNOWN,
        plan=acting(call="browse.open", arguments_json="[]"),
    ),
    wrong(
        FRAME,
        "'text' is there twice",
        COUNT,
        framing=TWO_ITEMS,
        plan=acting(arguments_json='{"text": "a", "text": "b"}'),
    ),
    wrong(
        REFLECTS,
        "NaN is no number",
        VERDICT,
        reflection=FINISH,
        plan=acting(arguments_json='{"text": NaN}'),
    ),
    wrong(
        PLANS,
        "'text' is in long_text, too",
        plan=acting(long_text={"argument": "text", "text": "y"}),
    ),
)
ARGUMENTS = of_kind(
    "arguments that do not fit",
    wrong(PLANS, TYPED, "plan.rationale: Field required", plan=without(WRONG, "rationale")),
    wrong(FRAME, REQUIRED, COUNT, framing=TWO_ITEMS, plan=EMPTY),
    wrong(REFLECTS, REQUIRED, VERDICT, reflection=FINISH, plan=EMPTY),
    wrong(
        PLANS,
        REQUIRED,
        "long_text.text: Field required",
        plan=acting(arguments_json="{}", long_text={"argument": "body"}),
    ),
    wrong(PLANS, TYPED, "plan and wait are given", plan=WRONG, wait=WAIT),
)
COUNTS = of_kind(
    "a framing that is none",
    wrong(FRAME, COUNT, UNKNOWN, framing=TWO_ITEMS, plan=UNKNOWN_TOOL),
    wrong(FRAME, COUNT, "goal_statement is blank", framing={**TWO_ITEMS, "goal_statement": " "}),
    wrong(
        FRAME,
        COUNT,
        "definition_of_done is blank",
        framing=framed(definition_of_done=[{**DONE[0], "text": ""}] * 8),
    ),
    wrong(FRAME, "framing: null, and this is what is asked for", plan=PLAN),
    wrong(
        FRAME,
        COUNT,
        "plan and ask are given",
        framing=framed(definition_of_done=[]),
        plan=PLAN,
        ask=ASK,
    ),
)
NEXT = of_kind(
    "no choice, or two",
    wrong(PLANS, "plan and ask are given", REQUIRED, plan=EMPTY, ask=ASK),
    wrong(PLANS, "plan, ask and wait: null"),
    wrong(PLANS, "only a reflection that escalates is an answer", reflection=REFLECTION),
    wrong(
        REFLECTS,
        "to ask, the verdict is `continue`",
        reflection=reflected(verdict="escalate"),
        ask=ASK,
    ),
    wrong(
        REFLECTS,
        VERDICT,
        "wait needs one of seconds and until",
        reflection=FINISH,
        wait={**WAIT, "until": "2026-11-22T12:00:00Z"},
    ),
)

ALL = [*CHOICES, *UNKNOWN_NAMES, *CALLS, *NO_ARGUMENTS, *ARGUMENTS, *COUNTS, *NEXT]
