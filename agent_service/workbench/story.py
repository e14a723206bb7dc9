"""The story of `agentic demo`, and of `agentic dev` without a model: a script, two pages on this machine, and a tool
with an outbox and a slow command."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

from agent_service.workbench.dev_settings import DevOptions
from groundwork.service import store_folder
from schemas.values import replace

STORY = Path(str(resources.files("agent_service") / "scripts" / "story"))
OUTBOX = "outbox"
COMPARE_S = 15
LOOK_S = 0.05


class _Pages(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


@contextmanager
def told(options: DevOptions) -> Iterator[DevOptions]:
    """The options with the story, while its pages are served."""
    folder = options.folder
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, directory=str(STORY / "pages"))) as server:
        threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True).start()
        script = (STORY / "script.yaml").read_text(encoding="utf-8")
        pages = f"http://127.0.0.1:{server.server_port}"
        store_folder.write(folder / "story.yaml", script.replace("PAGES", pages))
        store_folder.closed(folder / OUTBOX)
        letters = {"outbox": folder / OUTBOX, "compare_s": COMPARE_S}
        try:
            yield replace(
                options,
                script=folder / "story.yaml",
                plugins=(*options.plugins, STORY / "tools"),
                plugin_config={"fetch": {"allow_private": True}, "letters": letters, **options.plugin_config},
            )
        finally:
            server.shutdown()
