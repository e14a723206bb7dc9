"""A plugin in a Ductile asks for what it needs: beside a status that is ok, for a Ductile takes no other."""

from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.continuing import in_words
from ductile_gateway.ductile.catalog import DuctileTools
from schemas.continuation import Retrieve
from tests.ductile.runner_house import a_call, gateway, outcome
from tests.ductile.under_test import DuctileUnderTest

ASKS = {"action": "retrieve", "query": "what may be relaxed?"}
FORM = (
    "## Plugin Result\nStatus: continuation\nPlugin: probe\n\n"
    "## Continuation Request\nAction: retrieve\nQuery: what may be relaxed?\n"
)
BOTH_FORMS = pytest.mark.parametrize("says", [{"continuation": ASKS}, {"result": FORM}], ids=["json", "markdown"])


@BOTH_FORMS
@pytest.mark.parametrize("route", ["probe", "probe-asked"])
async def test_a_job_and_the_last_step_of_a_pipeline_ask_in_either_form(
    ductile: DuctileUnderTest, tmp_path: Path, route: str, says: dict[str, Any]
) -> None:
    tools = DuctileTools(pipelines=frozenset({"probe-asked"}))
    async with gateway(ductile, tmp_path, tools=tools) as runner:
        verdict = await runner.run(a_call("handle", plugin=route, do="say", says=says))
    found = outcome(in_words(verdict, plugin=route, reads=True))
    assert (found.status, found.continuation) == ("continuation", Retrieve.model_validate(ASKS))
    assert found.job.job_id


async def test_what_cannot_be_done_is_bad_output_of_a_job_that_is_not_run_again(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    async with gateway(ductile, tmp_path) as runner:
        found = outcome(await runner.run(a_call(do="say", says={"continuation": {"action": "retrieve"}})))
    assert (found.error_class, found.retryable, "query is missing" in str(found.message)) == ("bad_output", False, True)
    assert len(ductile.executions) == 1


@pytest.mark.parametrize(
    "do", [{"do": "say", "says": {"status": "continuation", "continuation": ASKS}}, {"do": "flood"}]
)
async def test_what_a_ductile_never_takes_ends_with_words_that_name_the_mend(
    ductile: DuctileUnderTest, tmp_path: Path, do: dict[str, Any]
) -> None:
    async with gateway(ductile, tmp_path) as runner:
        found = outcome(await runner.run(a_call(**do)))
    mend = "let it answer with less" if do["do"] == "flood" else "`continuation` beside `status: ok`"
    assert (found.status, found.error_class, found.retryable) == ("error", "bad_output", False)
    assert mend in (found.message or "")
