"""Cassettes: a recorded run is played again without its model, and never with answers to other prompts."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_service.ports import Model
from agent_service.workbench.evaluation.cassette import Player
from agent_service.workbench.evaluation.playing import Options, Result, play
from agent_service.workbench.evaluation.scenario import Scenario, own_folder, scenarios
from agent_service.workbench.evaluation.trials import Mind, of_model, replayed
from groundwork.service.errors import Misconfigured
from tests.cli.calling import ROOT, clean
from tests.evaluation.priced import Priced
from tests.evaluation.small import small, written

HIDDEN = 'key-"of-the-model'


async def recorded(
    scenario: Scenario, folder: Path, model: Model, secrets: tuple[str, ...] = (), *, fused: bool = True
) -> Result:
    trial = of_model(scenario, lambda: Mind(model=model, fused=fused))
    return await play(trial, Options(record=folder, secrets=secrets))


async def replay(scenario: Scenario, folder: Path) -> Result:
    (trial,) = replayed([scenario], folder)
    return await play(trial, Options())


@pytest.mark.parametrize("fused", [True, False])
async def test_a_recorded_run_is_played_again_the_same(tmp_path: Path, *, fused: bool) -> None:
    first = await recorded(small(), tmp_path, Priced(small(), faults=2), fused=fused)
    assert (first.passed, first.calls, first.tokens, first.cache_share) == (True, 3, 2370, 0.5)
    assert await replay(small(), tmp_path) == first
    assert await replay(small(), tmp_path) == first


@pytest.mark.parametrize("name", ["agents-share-a-budget", "agent-among-tasks", "deep-dependency"])
async def test_runs_that_a_run_started_and_what_its_tools_asked_for_are_played_again_the_same(
    tmp_path: Path, name: str
) -> None:
    (scenario,) = scenarios([own_folder()], [name])
    first = await recorded(scenario, tmp_path, Priced(scenario))
    assert (first.passed, first.tokens) == (True, 790 * first.calls)
    assert await replay(scenario, tmp_path) == first


@pytest.mark.parametrize("text", ["two\u2028lines\x85and\x0cmore", "a lone \ud800 surrogate", "a NUL \0 sign"])
async def test_texts_that_are_hard_to_keep_are_played_again_the_same(tmp_path: Path, text: str) -> None:
    first = await recorded(small(), tmp_path, Priced(small(), hypothesis=text))
    assert await replay(small(), tmp_path) == first


async def test_a_line_says_of_each_call_what_was_asked_and_answered(tmp_path: Path) -> None:
    await recorded(small(), tmp_path, Priced(small(), faults=1))
    heading, *calls = lines(tmp_path)
    assert (heading["scenario"], heading["fused"]) == ("small", True)
    assert [(call["call"], call["phase"]) for call in calls] == [
        (1, "frame"),
        (1, "frame"),
        (2, "plan"),
        (3, "reflect"),
    ]
    assert calls[0]["error"]["error_class"] == "overloaded"
    assert calls[1]["answer"]["decision"]["goal_statement"] == "It is on."
    assert all(len(call["prompt"]) == 32 and call["estimate"]["reserve"]["tokens"] == 900 for call in calls)
    assert small().goal not in (tmp_path / "small.jsonl").read_text()


@pytest.mark.parametrize(
    "changes",
    [
        {"goal": "Switch the lamp off."},
        {"context": {"room": "hall"}},
        {"constraints": {"max_steps": 3}},
        {"tools": [{**small().tools[0].model_dump(by_alias=True), "description": "Another lamp."}]},
    ],
)
async def test_another_prompt_is_not_answered(tmp_path: Path, changes: dict[str, Any]) -> None:
    await recorded(small(), tmp_path, Priced(small()))
    result = await replay(small(**changes), tmp_path)
    remedy = f"record anew with --record {tmp_path} --scenario small"
    assert result.unmet == (f"the prompt of call 1 (frame) is not the recorded one: {remedy}",)


async def test_the_call_is_named_at_which_a_run_takes_another_way(tmp_path: Path) -> None:
    await recorded(small(), tmp_path, Priced(small()))
    file = tmp_path / "small.jsonl"
    file.write_text(file.read_text().replace("It is on.", "It shines.", 1))
    assert (await replay(small(), tmp_path)).unmet[0].startswith("the prompt of call 2 (plan) is not the recorded one")


async def test_a_call_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    await recorded(small(), tmp_path, Priced(small()))
    file = tmp_path / "small.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert (await replay(small(), tmp_path)).unmet[0].startswith("call 3 (reflect) was not recorded: record anew")


async def test_templates_that_have_changed_are_named_as_a_reason(tmp_path: Path) -> None:
    await recorded(small(), tmp_path, Priced(small()))
    file = tmp_path / "small.jsonl"
    file.write_text(file.read_text().replace('"templates":"', '"templates":"x', 1))
    assert (await replay(small(), tmp_path)).passed
    result = await replay(small(goal="Switch the lamp off."), tmp_path)
    assert "and the templates of prompts have changed since" in result.unmet[0]


async def test_no_secret_of_the_configuration_is_in_a_cassette(tmp_path: Path) -> None:
    await recorded(small(), tmp_path, Priced(small(), hypothesis=f"it says {HIDDEN}"), (HIDDEN, "short"))
    content = (tmp_path / "small.jsonl").read_text()
    assert "it says ***" in content
    assert "of-the-model" not in content


def test_a_run_that_could_not_be_played_leaves_no_cassette(tmp_path: Path) -> None:
    result = asyncio.run(recorded(small(constraints={"max_steps": 1000}), tmp_path, Priced(small())))
    assert not result.passed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{}", '{"cassette": 2}', "no JSON", "\ufeff"])
async def test_a_file_that_is_no_cassette_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "small.jsonl").write_text(content)
    with pytest.raises(Misconfigured, match="cannot be read"):
        Player(tmp_path / "small.jsonl")
    assert f"record it anew with --record {tmp_path}" in (await replay(small(), tmp_path)).unmet[0]


async def test_a_missing_cassette_is_told_with_the_remedy(tmp_path: Path) -> None:
    result = await replay(small(), tmp_path)
    assert result.unmet == (f"there is no cassette {tmp_path}/small.jsonl: record it with --record {tmp_path}",)


def test_a_replay_imports_no_sdk(tmp_path: Path) -> None:
    asyncio.run(recorded(small(), tmp_path, Priced(small())))
    written(tmp_path)
    probe = (
        "import sys\nfrom agent_service.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    print(end.code, *sys.modules, file=sys.stderr)"
    )
    arguments = ["eval", "--folder", str(tmp_path), "--scenario", "small", "--replay", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", probe, *arguments],
        env=clean({"AGENT_MODEL__PROVIDER": "anthropic"}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    code, *modules = done.stderr.split()
    assert code == "0"
    assert {"anthropic", "openai", "nats", "fastapi"} & set(modules) == set()


def lines(folder: Path) -> list[dict[str, Any]]:
    return list(_parsed(folder / "small.jsonl"))


def _parsed(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text().splitlines():
        yield json.loads(line)
