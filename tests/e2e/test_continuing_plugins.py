"""The plugins of docs/CONTINUATIONS.md, as they stand there, with the knowledge that they ask for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from agent_service.workbench.dev import PLUGINS, DevOptions, DevStack, stack
from schemas import subjects
from tests.e2e.bodies import FRAME, on_the_bus, to_the_end, wake
from tests.kit.pages import ROOT, written

PAGE = ROOT / "docs" / "CONTINUATIONS.md"
KNOWN = {
    "bridge.md": "# The old bridge\n\nThe old bridge was built in 1821.\n",
    "tower.md": "# The round tower\n\nThe round tower was built in 1790.\n",
}


def calling(tool: str, **arguments: str) -> dict[str, Any]:
    """A script that calls `tool` once and is done, or says why not."""
    plan = {"action": {"tool": tool, "command": "handle", "arguments": arguments}}
    end = {"verdict": "done", "summary": "done", "met": [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]}
    return {"name": "one", "rules": [FRAME, {"phase": "plan", "plan": plan}, {"phase": "reflect", "reflect": end}]}


@asynccontextmanager
async def with_knowledge(folder: Path, script: dict[str, Any]) -> AsyncIterator[DevStack]:
    pages = folder / "pages"
    pages.mkdir(parents=True)
    for name, text in KNOWN.items():
        (pages / name).write_text(text)
    written(PAGE, folder)
    (folder / "script.yaml").write_text(yaml.safe_dump(script))
    options = DevOptions(
        folder=folder / "stack",
        script=folder / "script.yaml",
        plugins=(PLUGINS, folder / "plugins"),
        plugin_config={"knowledge": {"folder": str(pages)}},
        sync_interval="1s",
    )
    async with stack(options) as made:
        yield made


async def test_the_plugin_in_python_answers_from_what_it_asked_for(tmp_path: Path) -> None:
    async with with_knowledge(tmp_path, calling("look-up", question="When was the old bridge built?")) as made:
        ended = await to_the_end(made, await wake(made))
        asked = [await on_the_bus(made, subjects.tool_request(route)) for route in ("look-up", "knowledge")]
    assert ended["state"] == "done"
    assert "1821" in ended["steps"][0]["summary"]
    assert [[request.get("task") for request in requests] for requests in asked] == [[None, "again"], ["task-1"]]
