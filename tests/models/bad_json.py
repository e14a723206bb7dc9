"""Replies that cannot be read, or not as what they should be: made by hand, most of them wrong more than once."""

from tests.models.faults_of_replies import (
    COMPACTS,
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
    broken,
    commented,
    ended,
    framed,
    misplaced,
    of_kind,
    planned,
    reflected,
    single_quoted,
    surrounded,
    unquoted,
    with_last_commas,
    without,
    wrong,
)
from tests.models.model_house import ACTION, ASK, PLAN, REFLECTION

NOT_JSON = "the reply is no JSON"

WRITTEN = of_kind(
    "written otherwise",
    broken(
        REFLECTS,
        with_last_commas,
        NOT_JSON,
        VERDICT,
        UNKNOWN,
        "arguments_json: Expecting property name",
        reflection=FINISH,
        plan=UNKNOWN_TOOL,
    ),
    broken(FRAME, single_quoted, NOT_JSON, COUNT, framing=TWO_ITEMS, ask=ASK),
    broken(FRAME, unquoted, NOT_JSON, COUNT, UNCOMMANDED, framing=TWO_ITEMS, plan=NO_COMMAND),
    broken(PLANS, commented, NOT_JSON, TYPED, plan=WRONG),
    broken(REFLECTS, misplaced, NOT_JSON, reflection=REFLECTION, plan=PLAN),
)
AROUND = of_kind(
    "words around",
    broken(REFLECTS, surrounded("Here it is:\n", ""), "before the JSON", VERDICT, reflection=FINISH),
    broken(FRAME, surrounded("", "\nI hope this helps."), "after the JSON", COUNT, framing=TWO_ITEMS),
    broken(PLANS, surrounded("Sure: ```json\n", "\n```"), "before", "after", REQUIRED, plan=EMPTY),
    broken(PLANS, lambda text: text + text, "more than one JSON object", UNKNOWN, plan=UNKNOWN_TOOL),
    Bad(REFLECTS, "I think we are done.", ("no JSON object in the reply", "I think we are done")),
)
ENDED = of_kind(
    "breaks off",
    broken(PLANS, ended(40), "breaks off after", UNKNOWN, plan=UNKNOWN_TOOL),
    broken(
        FRAME,
        ended(60),
        "breaks off after",
        "names the tool 'browse', which is not on offer",
        framing=framed(definition_of_done=[{**item, "tool": "browse"} for item in DONE]),
    ),
    broken(REFLECTS, ended(50), "breaks off after", VERDICT, reflection=FINISH, plan=PLAN),
    Bad(COMPACTS, '{"memory": ["one", "tw', ("breaks off after 22 characters",)),
    Bad(REFLECTS, "", ("the reply holds no text",)),
)
MISSING = of_kind(
    "a field is missing",
    wrong(
        FRAME,
        "framing.goal_statement: Field required",
        COUNT,
        framing=without(TWO_ITEMS, "goal_statement"),
    ),
    wrong(
        FRAME,
        "definition_of_done.1.proof: Field required",
        framing=framed(definition_of_done=[DONE[0], {"text": "x"}, DONE[1]]),
    ),
    wrong(PLANS, "plan.rationale: Field required", UNKNOWN, plan=without(UNKNOWN_TOOL, "rationale")),
    wrong(
        REFLECTS,
        "reflection.summary",
        TYPED,
        reflection={"facts": []},
        plan=WRONG,
    ),
    Bad(VERIFIES, '{"holds": true}', ("reason: Field required",)),
)
TYPES = of_kind(
    "a wrong type",
    wrong(
        FRAME,
        "framing.constraints: Input should be a valid list",
        COUNT,
        framing={**TWO_ITEMS, "constraints": "none"},
    ),
    wrong(
        FRAME,
        "definition_of_done.0: Input should be",
        "definition_of_done.1: Input",
        "definition_of_done.2: Input",
        framing=framed(definition_of_done=["a", "b", "c"]),
    ),
    wrong(
        PLANS,
        "arguments_json: Input should be a valid string",
        TYPED,
        plan=acting(arguments_json={"text": 7}),
    ),
    wrong(
        REFLECTS,
        "reflection.met: Input should be a valid list",
        "plan.actions: Input",
        reflection=reflected(met="d1"),
        plan=planned(actions=ACTION),
    ),
    wrong(COMPACTS, "memory: Input should be a valid list", memory="all of it"),
)

ALL = [*WRITTEN, *AROUND, *ENDED, *MISSING, *TYPES]
