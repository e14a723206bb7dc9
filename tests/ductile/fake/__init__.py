"""A Ductile in memory that speaks HTTP: the behaviour of the real one as it was measured, and its faults on request."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from tests.ductile.fake.api import Api
from tests.ductile.fake.behaviours import Behaviour, probe
from tests.ductile.fake.catalog import Catalog, Pipeline
from tests.ductile.fake.dispatch import Dispatcher
from tests.ductile.fake.ingress import PATH, accept
from tests.ductile.fake.jobs import Jobs
from tests.ductile.fake.server import Server
from tests.ductile.fake.wire import Answer, Faults, Refused, Request
from tests.ductile.under_test import PROBE, TOKENS, Execution, Peer


class FakeDuctile:
    """A Ductile that listens on a free port of the loopback interface from the moment it is made.

    Use it as a context manager. It knows the probe plugin and the pipelines that start it.
    version: "M" is the measured one, "N" the newer one with narrower scopes and earlier deduplication.
    backoff_seconds: before the second attempt; doubled for each further one.
    """

    def __init__(
        self,
        *,
        version: Literal["M", "N"] = "M",
        tokens: Mapping[str, tuple[str, ...]] = TOKENS,
        peer: Peer | None = None,
        backoff_seconds: float = 0.05,
    ) -> None:
        self.faults = Faults()
        self.peer = peer or Peer()
        self.tokens: Mapping[str, str] = {name: f"token-of-{name}" for name in tokens}
        self.executions: list[Execution] = []
        self._version, self._scopes = version, {self.tokens[name]: tokens[name] for name in tokens}
        self._backoff_s = backoff_seconds
        self._behaviours: dict[tuple[str, str], Behaviour] = {}
        self._catalog, self._jobs = Catalog(), Jobs(outstanding_are_duplicates=version == "N")
        self.plugin(PROBE)
        for command in ("handle", "look", "note"):
            self.on("probe", command, probe)
        self.pipeline("probe-asked", on="probe.asked", plugin="probe")
        self._begin_life(port=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._server.closing.is_set():
            self.kill()

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end; the same after a restart."""
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def token(self) -> str:
        """The token named `gateway`."""
        return self.tokens["gateway"]

    def on(self, plugin: str, command: str, behaviour: Behaviour) -> None:
        """From now on this is what the command does. A command without a behaviour succeeds with "done"."""
        self._behaviours[plugin, command] = behaviour

    def plugin(self, manifest: Mapping[str, Any] | Path) -> None:
        """Add a plugin by its manifest, or by the folder that holds a manifest.yaml."""
        self._catalog.add(manifest)

    def pipeline(self, name: str, *, on: str, plugin: str) -> None:
        """Add a pipeline whose one step is the plugin's `handle`."""
        self._catalog.pipelines[name] = Pipeline(name, on, plugin)

    def kill(self) -> None:
        """Stop listening and drop all connections. What runs goes on, but nobody takes note of it."""
        self._life.end()
        self._server.close()

    def start(self) -> None:
        """Listen again at the same address: running jobs are queued again, event ids begin at 1."""
        self._begin_life(port=self._server.port)
        self._life.recover()

    def _begin_life(self, *, port: int) -> None:
        self._life = Dispatcher(self._jobs, self._behaviours, self.executions, self._backoff_s)
        self._api = Api(self._jobs, self._catalog, self._life, version=self._version, tokens=self._scopes)
        self._server = Server(port, self.faults, answer=self._answer)

    def _answer(self, request: Request) -> Answer:
        try:
            if request.method == "POST" and PATH.fullmatch(request.path):
                return accept(request, self.peer, self._catalog, self._life)
            return self._api.answer(request)
        except Refused as refused:
            return refused.answer
