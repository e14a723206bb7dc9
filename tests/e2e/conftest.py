"""Fixtures of this folder: a stack per file, and a model to hold in mid-thought."""

from collections.abc import AsyncIterator, Iterator
from importlib import resources
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from agent_service.workbench.dev import DevStack
from agent_service.workbench.dev_settings import PLUGINS
from tests.kit.http_server import WireServer
from tests.kit.pages import ROOT
from tests.kit.pages import written as files_of
from tests.kit.stack import DONE, FRAME, PROBES, is_ready, of_goal, planning, recording, running, until

SCRIPTS = Path(str(resources.files("agent_service"))) / "scripts"
PAGES = SCRIPTS / "story" / "pages"
KNOWN = {
    "bridge.md": "# The old bridge\n\nThe old bridge was built in 1821.\n",
    "tower.md": "# The round tower\n\nThe round tower was built in 1790.\n",
}
THINKS_S = 3.0


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    content = (PAGES / "attic.html").read_bytes()
    with WireServer(lambda _: (200, {"Content-Type": "text/html"}, content)) as site:
        yield f"{site.url}/attic.html"


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder where runs of `made` record two lines, each in a file named by its goal; they wait for `NAME.go1` and
    `NAME.go2`."""
    return tmp_path_factory.mktemp("marks")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack_of_file(tmp_path_factory: pytest.TempPathFactory, marks: Path) -> AsyncIterator[DevStack]:
    """A stack for all tests of a file; its gateway refuses writes without the agent's signature.

    The goal selects what a run does: `fetch web …` the worked example, `look up …` a tool of docs/CONTINUATIONS.md that
    asks for more, `slowly …` thinks before it frames; any other goal names the file that the run records in.
    """
    folder = tmp_path_factory.mktemp("stack")
    files_of(ROOT / "docs" / "CONTINUATIONS.md", folder)
    (folder / "pages").mkdir()
    for name, text in KNOWN.items():
        (folder / "pages" / name).write_text(text)
    demo = yaml.safe_load((SCRIPTS / "demo.yaml").read_text())["rules"]
    records = recording(marks / "$goal", go=marks / "$goal.go")
    rules = [
        *(rule for rule in demo if rule.get("when", {}).get("goal", "").startswith("fetch web")),
        *of_goal("^look up", planning("look-up", question="When was the old bridge built?"), DONE),
        *of_goal("^slowly", FRAME | {"wait_s": THINKS_S}),
        *records["rules"],
    ]
    async with running(
        folder / "dev",
        records | {"rules": rules},
        plugins=(PLUGINS, PROBES, folder / "plugins"),
        plugin_config={"fetch": {"allow_private": True}, "knowledge": {"folder": str(folder / "pages")}},
        gateway={"require_signed_writes": True},
    ) as stack:
        yield stack


@pytest_asyncio.fixture(loop_scope="module")
async def made(stack_of_file: DevStack) -> DevStack:
    """The stack of the file, restored after each test."""
    await until(lambda: is_ready(stack_of_file))
    return stack_of_file
