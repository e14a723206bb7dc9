"""What the scripted model decides in the circle.

A goal with an address is reached with two tools of Ductile, fetch and text-report; one such as `hold look until FILE`
with two others, of which the first (the probe's command `look` or `note`) waits for the file. Where the goal begins
with `slowly`, the model thinks for a while after each of them. A goal that ends in `alone` is given up after one tool,
and reached when a person has answered; one that ends in `aloud` takes a tool that a person has to allow. One that
begins with `equip` takes a tool that has to look something up before it answers.
"""

from typing import Any

from tests.e2e.bodies import FRAME

PAGE, HOLD = r"(?P<url>https?://\S+)", r"hold (?P<command>\w+) until (?P<file>\S+)"
ALONE = "alone$"
SLOWLY, THINKS_S = "^slowly ", 2.0
REPORT = {"action": {"tool": "text-report", "command": "handle", "arguments": {"artifact": "$artifact"}}}
ECHO = {"action": {"tool": "echo", "command": "handle", "arguments": {"message": "It was held."}}}
SEATS: dict[str, Any] = {
    "variables": {"seats": "int", "cost": "int"},
    "constraints": [{"name": "budget", "expr": "cost <= 10000"}, "cost = seats * 900", "seats >= 12"],
}
SOLVE = {"action": {"tool": "z3-solver", "command": "solve", "arguments": SEATS}}
SHOUT = {"action": {"tool": "shout", "command": "handle", "arguments": {"message": "Hello!"}}}
MET = [{"item": item, "evidence": "step:1"} for item in ("d1", "d2", "d3")]
DONE = {"verdict": "done", "summary": "It is done.", "met": MET, "outcome": "The last tool was $tool."}
GIVE_UP = {"verdict": "escalate", "summary": "Nobody said which.", "outcome": "Which of the two?"}
GO_ON = {"verdict": "continue", "summary": "The first half is done."}
SCRIPT: dict[str, Any] = {
    "name": "circle",
    "rules": [
        FRAME,
        {
            "phase": "plan",
            "when": {"goal": PAGE},
            "plan": {"action": {"tool": "fetch", "command": "handle", "arguments": {"url": "$url"}}},
        },
        {"phase": "reflect", "when": {"goal": PAGE, "tool": "fetch"}, "reflect": GO_ON, "plan": REPORT},
        {
            "phase": "plan",
            "when": {"goal": HOLD},
            "plan": {"action": {"tool": "probe", "command": "$command", "arguments": {"do": "hold", "until": "$file"}}},
        },
        {
            "phase": "reflect",
            "wait_s": THINKS_S,
            "when": {"goal": SLOWLY, "tool": "probe"},
            "reflect": GO_ON,
            "plan": ECHO,
        },
        {"phase": "reflect", "when": {"goal": HOLD, "tool": "probe"}, "reflect": GO_ON, "plan": ECHO},
        {"phase": "plan", "when": {"goal": "aloud$"}, "plan": SHOUT},
        {"phase": "plan", "when": {"goal": "^equip"}, "plan": SOLVE},
        {"phase": "plan", "when": {"goal": ALONE}, "plan": ECHO},
        {"phase": "reflect", "when": {"goal": ALONE, "feedback": "handed to a person"}, "reflect": DONE},
        {"phase": "reflect", "when": {"goal": ALONE}, "reflect": GIVE_UP},
        {"phase": "reflect", "wait_s": THINKS_S, "when": {"goal": SLOWLY}, "reflect": DONE},
        {"phase": "reflect", "reflect": DONE},
    ],
}
