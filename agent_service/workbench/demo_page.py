"""A page to criticise, served on a free port of this machine while the demo runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

FOLDER = "scripts"
FILE = "page.html"
LOOK_S = 0.05
"""How often the server looks whether it is to stop."""


class Page:
    """`visits` counts how often the page was asked for. `before_first` is called before the first visitor gets it."""

    def __init__(self, before_first: Callable[[], None]) -> None:
        self.url = ""
        self.visits = 0
        self._before_first = before_first

    def visit(self) -> None:
        self.visits += 1
        if self.visits == 1:
            self._before_first()

    @contextmanager
    def served(self) -> Iterator[None]:
        folder = str(resources.files("agent_service") / FOLDER)
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self, directory=folder)) as server:
            self.url = f"http://127.0.0.1:{server.server_port}/{FILE}"
            threading.Thread(target=server.serve_forever, args=(LOOK_S,), daemon=True).start()
            try:
                yield
            finally:
                server.shutdown()


class _Handler(SimpleHTTPRequestHandler):
    """Inherits because that is how http.server is told."""

    def __init__(self, page: Page, *request: Any, directory: str) -> None:
        self._page = page
        super().__init__(*request, directory=directory)

    def do_GET(self) -> None:
        self._page.visit()
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        return
