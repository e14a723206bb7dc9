"""Calls carried into a Ductile, the fake and, where there is one, a real one."""

import asyncio
from pathlib import Path

import pytest

from ductile_gateway.calls.call import AlreadyStarted, NeverStarted
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.discovery import discover_tools
from ductile_gateway.tools.catalog import ToolChoice
from groundwork.service.errors import Misconfigured
from tests.ductile.runner_house import a_call, gateway, outcome, settings_for
from tests.ductile.under_test import DuctileUnderTest
from tests.kit.waiting import until

HELD = "hold"


async def test_a_call_is_run_once_with_its_id_and_its_outcome_comes_back(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    call = a_call("look", text="Grüße")
    async with gateway(ductile, tmp_path) as runner:
        found = outcome(await runner.run(call))
    assert (found.status, found.text) == ("ok", "done")
    assert found.output == {"payload": {"text": "Grüße", "agentic_call_id": call.key}}
    assert len(ductile.executions) == 1


async def test_a_call_under_way_is_resumed_by_the_next_gateway_and_not_run_again(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    call = a_call(do=HELD, until=str(release))
    async with gateway(ductile, tmp_path) as runner:
        running = asyncio.create_task(runner.run(call))
        await until(lambda: ductile.executions)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    release.touch()
    async with gateway(ductile, tmp_path) as runner:
        with pytest.raises(AlreadyStarted):
            await runner.run(call)
        assert outcome(await runner.resume(call)).status == "ok"
    assert len(ductile.executions) == 1


async def test_the_error_of_a_tool_is_told_in_its_own_words(ductile: DuctileUnderTest, tmp_path: Path) -> None:
    async with gateway(ductile, tmp_path) as runner:
        found = outcome(await runner.run(a_call(do="refuse")))
    assert (found.error_class, found.message, found.retryable) == ("invalid_arguments", "as you wish", False)


@pytest.mark.parametrize("do", ["garbage", "silence", "stumble"])
async def test_what_ductile_retries_in_vain_is_an_error_at_the_end(
    ductile: DuctileUnderTest, tmp_path: Path, do: str
) -> None:
    async with gateway(ductile, tmp_path) as runner:
        found = outcome(await runner.run(a_call(do=do)))
    assert found.error_class == ("tool_error" if do == "stumble" else "bad_output")
    assert not found.retryable
    assert len(ductile.executions) == 4


async def test_at_the_deadline_the_call_has_timed_out_and_its_job_is_remembered(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    async with gateway(ductile, tmp_path) as runner:
        call = a_call(within_s=1.5, do=HELD, until=str(tmp_path / "release"))
        assert outcome(await runner.run(call)).error_class == "timeout"
        assert runner.late.waiting() == 1
    assert len(ductile.executions) == 1


@pytest.mark.parametrize(("plugin", "command"), [("probe", "vanish"), ("probe", "../x"), ("a?b", "note")])
async def test_a_command_that_is_not_there_is_refused_and_can_be_asked_for_again(
    ductile: DuctileUnderTest, tmp_path: Path, plugin: str, command: str
) -> None:
    call = a_call(command, plugin=plugin)
    async with gateway(ductile, tmp_path) as runner:
        assert outcome(await runner.run(call)).error_class == "configuration"
        assert await runner.resume(call) == NeverStarted()


async def test_the_call_id_is_ours_whatever_the_model_gives(ductile: DuctileUnderTest, tmp_path: Path) -> None:
    call = a_call(agentic_call_id="run_of_another:1:probe:1")
    async with gateway(ductile, tmp_path) as runner:
        found = outcome(await runner.run(call))
    assert found.output == {"payload": {"agentic_call_id": call.key}}


async def test_a_pipeline_answers_as_its_last_step(ductile: DuctileUnderTest, tmp_path: Path) -> None:
    tools = DuctileTools(pipelines=frozenset({"probe-asked"}))
    async with gateway(ductile, tmp_path, tools=tools) as runner:
        found = outcome(await runner.run(a_call("handle", plugin="probe-asked")))
    assert (found.status, found.text) == ("ok", "done")


async def test_what_is_there_is_discovered_for_the_chosen_tools_alone(ductile: DuctileUnderTest) -> None:
    settings = settings_for(ductile, idempotent=["probe/note"])
    choices = {"probe": ToolChoice(), "flow": ToolChoice(plugin="probe-asked"), "missing": ToolChoice()}
    async with open_api(settings) as api:
        found = await discover_tools(api, choices, settings)
        nothing = await discover_tools(api, None, settings)
    commands = {command.name: (command.type, command.idempotent) for command in found.manifests["probe"].commands}
    assert commands == {"handle": ("write", False), "look": ("read", False), "note": ("write", True)}
    assert found.manifests.keys() == {"probe", "probe-asked"}
    assert found.pipelines == {"probe-asked"}
    assert not nothing.manifests
    assert nothing.problems


@pytest.mark.parametrize(
    ("token", "refused"),
    [
        *(("caller", "jobs:ro"), ("nobody", "jobs:ro")),
        *((name, "make one with plugin:ro") for name in ("operator", "everything")),
    ],
)
async def test_a_token_that_opens_too_little_or_too_much_is_not_used(
    ductile: DuctileUnderTest, token: str, refused: str
) -> None:
    settings = settings_for(ductile, token=ductile.tokens[token])
    async with open_api(settings) as api:
        with pytest.raises(Misconfigured, match=refused):
            await discover_tools(api, {"probe": ToolChoice()}, settings)


@pytest.mark.parametrize(
    ("command", "events", "warned"),
    [
        ("look", True, "events:ro"),
        ("look", False, ""),
        ("note", False, "does not open calls that write: give it plugin:rw"),
    ],
)
async def test_a_token_that_only_reads_is_warned_of_where_that_is_too_little(
    ductile: DuctileUnderTest, command: str, events: bool, warned: str
) -> None:
    settings = settings_for(ductile, token=ductile.tokens["reader"], events=events)
    async with open_api(settings) as api:
        choice = ToolChoice(commands=frozenset({command}))
        warnings = (await discover_tools(api, {"probe": choice}, settings)).warnings
    assert [warned in warning for warning in warnings] == [True] * bool(warned)
