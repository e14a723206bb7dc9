"""The shipped plugins confined as newer Ductiles run them: by an account of their own, with one folder to write in, few
variables, and no network.

Only root can run a program by another account; for others the folders are as they are, and the network is there.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.asking import SHIPPED, a_request, run

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
PAGE = {"artifact": {"path": "artifacts/a.md", "content_type": "text/markdown", "text": "# Tea\n\nIt is warm."}}
ALONE: dict[tuple[str, str], dict[str, Any]] = {
    ("artifact", "read"): PAGE,
    ("artifact", "search"): PAGE | {"pattern": "warm"},
    ("echo", "handle"): {"message": "hello"},
    ("knowledge", "search"): {"query": "tea"},
    ("text-report", "handle"): PAGE,
    ("agentic-wake", "health"): {},
    ("agentic-run", "health"): {},
}
"""By plugin and command: what it is asked, where it speaks to nobody."""
AWAY: dict[tuple[str, str], dict[str, Any]] = {
    ("fetch", "handle"): {"url": "http://127.0.0.1:80/"},
    ("ductile-look", "system"): {},
    ("agentic-wake", "wake"): {"goal": "look"},
    ("agentic-run", "status"): {"run_id": "run_1"},
}
"""By plugin and command: what it is asked, where the other end does not answer."""


class Account:
    """One that may read the plugins, and write its own folder."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.plugins, self.pages, self.state = folder / "plugins", folder / "pages", folder / "state"
        shutil.copytree(SHIPPED, self.plugins, ignore=shutil.ignore_patterns("__pycache__"))
        self.pages.mkdir()
        (self.pages / "tea.md").write_text("# Tea\n\nIt is warm.\n")
        self.state.mkdir(mode=0o700)
        subprocess.run(["chmod", "-R", "a+rX,a-w", self.plugins, self.pages], check=True)
        if IS_ROOT:
            os.chown(self.state, NOBODY, NOBODY)

    def asks(self, plugin: str, request: bytes) -> dict[str, Any]:
        account = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if IS_ROOT else []
        cut_off = ["unshare", "--net"] if IS_ROOT else []
        env = {"LANG": "C.UTF-8", "TZ": "UTC"} | dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TMPDIR"), str(self.state))
        return run(self.plugins / plugin, request, *cut_off, *account, cwd=self.state, env=env)


@pytest.fixture
def account() -> Iterator[Account]:
    """An account with a folder that it can reach: the usual folder of tests is for one account."""
    folder = Path(tempfile.mkdtemp())
    yield Account(folder)
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    shutil.rmtree(folder)


def files(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.is_file()}


def test_every_shipped_plugin_needs_no_folder_but_its_own_and_no_network_where_it_speaks_to_nobody(
    account: Account,
) -> None:
    before = files(account.plugins)
    config = {"folder": str(account.pages), "url": "http://127.0.0.1:9", "token": "a-token-for-tests"}
    for (plugin, command), payload in (ALONE | AWAY).items():
        more = {"allow_private": True} if plugin == "fetch" else config
        response = account.asks(plugin, a_request(payload, command=command, config=more))
        expected = ("ok", None) if (plugin, command) in ALONE else ("error", True)
        assert (response["status"], response.get("retry")) == expected, response
    assert files(account.plugins) == before
    assert files(account.state), "what is kept of pages is kept in the account's own folder"
    tried = {plugin for plugin, _ in ALONE | AWAY} | {"z3-solver"}  # its package is out of reach
    assert {folder.name for folder in SHIPPED.iterdir() if folder.is_dir()} == tried
