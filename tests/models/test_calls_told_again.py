"""What a model was told is made anew from the journal, byte for byte."""

from typing import Any

import pytest

from agent_service.core.brief import Limits
from agent_service.models.prompts.prompt import as_text
from agent_service.run.moments import retell
from agent_service.telling.answers.model_calls import CallView, call_view, made_call
from schemas import keys, subjects
from tests.kit.runs import NOON
from tests.models.fake_anthropic import Claude
from tests.models.living import Living
from tests.models.test_durable_calls import appends

STRUCK = (
    "no crash",
    "before commit of CallReserved",
    "after commit of CallReserved",
    "before commit of ModelReplied",
    "after commit of ModelReplied",
)


def sent(request: dict[str, Any]) -> list[tuple[str, str]]:
    system = [("system", block["text"]) for block in request["system"]]
    return system + [("user", block["text"]) for block in request["messages"][0]["content"]]


async def told(living: Living, run_id: str, number: int) -> CallView:
    made = made_call(retell(await living.entries(run_id)), number)
    assert made is not None
    return call_view(made, as_text(made.question()))


@pytest.mark.parametrize("crash", STRUCK)
async def test_a_call_is_told_as_it_was_sent_last(claude: Claude, crash: str) -> None:
    claude.fake.policy = appends
    living = Living(claude.model, Limits(deadline_at=NOON, max_tokens=500_000, max_cost_usd=5.0))
    living.faults.strike_each(crash, 1)
    state = await living.run()
    views = [await told(living, state.run_id, number) for number in range(1, state.calls + 1)]
    again = [[(part.role, part.text) for part in view.prompt] for view in views]
    assert again == list(map(sent, claude.requests))[-state.calls :]
    assert [view.prompt_note for view in views] == [""] * state.calls
    assert all(view.reply and view.usage and view.provenance for view in views)


async def test_a_call_that_was_put_off_is_told_as_it_was_made_last(claude: Claude) -> None:
    claude.fake.policy = appends
    claude.fake.fail(529)
    living = Living(claude.model, Limits(deadline_at=NOON))
    state = await living.run()
    failed = await told(living, state.run_id, 1)
    assert "the model gave no answer (overloaded)" in failed.outcome
    message = {"run_id": state.run_id, "signal_id": "s", "kind": "message", "message": "be brief"}
    await living.hear(subjects.SIGNAL, message, keys.signal(state.run_id, "s"))
    await living.wait(60)
    view = await told(living, state.run_id, 1)
    assert [(part.role, part.text) for part in view.prompt] == sent(claude.requests[1])
    assert view.outcome.startswith("framed: ")
