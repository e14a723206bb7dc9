"""A Ductile in memory with an HTTP API: the measured behaviour of the real one, and faults on request.

It answers only requests that a gateway makes.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

import yaml

from tests.ductile.fake.api import PATH, Api, accept
from tests.ductile.fake.behaviours import Behaviour, probe
from tests.ductile.fake.jobs import Jobs
from tests.ductile.fake.server import Faults, Refused, Request
from tests.ductile.under_test import PROBE, TOKENS, Execution, Peer
from tests.kit.http_server import Call, Response, WireServer


class FakeDuctile:
    """Listens on a free loopback port. It has the probe plugin and the pipelines that start it. version: "M" is the
    measured one, "N" the newer one with narrower scopes. backoff_seconds: before the second attempt, then doubled."""

    def __init__(
        self,
        *,
        version: Literal["M", "N"] = "M",
        tokens: Mapping[str, tuple[str, ...]] = TOKENS,
        backoff_seconds: float = 0.05,
    ) -> None:
        self.faults, self.peer = Faults(), Peer()
        self.tokens: Mapping[str, str] = {name: f"token-of-{name}" for name in tokens}
        self.token = self.tokens["gateway"]
        self.executions: list[Execution] = []
        self._behaviours: dict[tuple[str, str], Behaviour] = {}
        self._plugins: dict[str, Mapping[str, Any]] = {}
        self._pipelines: dict[str, tuple[str, str]] = {}
        self._jobs = Jobs(self._behaviours, self.executions, backoff_seconds)
        scopes = {self.tokens[name]: tokens[name] for name in tokens}
        self._api = Api(self._jobs, self._plugins, self._pipelines, version=version, tokens=scopes)
        self.plugin(yaml.safe_load((PROBE / "manifest.yaml").read_text(encoding="utf-8")))
        for command in ("handle", "look", "note"):
            self.on("probe", command, probe)
        self.pipeline("probe-asked", on="probe.asked", plugin="probe")
        self.pipeline("endings", on="agent.completed", plugin="probe")
        self._server: WireServer | None = WireServer(self._respond)
        self._port = self._server.port
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def on(self, plugin: str, command: str, behaviour: Behaviour) -> None:
        """Sets the behaviour of a command; the default succeeds with "done"."""
        self._behaviours[plugin, command] = behaviour

    def plugin(self, manifest: Mapping[str, Any]) -> None:
        self._plugins[manifest["name"]] = manifest

    def pipeline(self, name: str, *, on: str, plugin: str) -> None:
        """Adds a pipeline whose only step is the plugin's `handle`."""
        self._pipelines[name] = (on, plugin)

    def kill(self) -> None:
        """Stops listening and drops all connections. Running plugins go on, unrecorded."""
        if self._server:
            self._jobs.end()
            self._server.close()
            self._server = None

    def start(self, *, without_jobs: bool = False) -> None:
        """Listens again at the same address: running jobs are queued again, event ids begin at 1."""
        if without_jobs:
            self._jobs.lose()
        self._api.uptime_s = 0
        self._jobs.begin_again()
        self._server = WireServer(self._respond, port=self._port)

    def _respond(self, call: Call) -> Response:
        request = Request.of(call)
        if self.faults.proxied or request.method == "GET" or not self.faults.strangers:
            return self.faults.proxied or self._answer(request)
        stranger, passes = self.faults.strangers.pop(0)
        if passes:
            self._answer(request)
        return stranger

    def _answer(self, request: Request) -> Response:
        try:
            if request.method == "POST" and PATH.fullmatch(request.path):
                return accept(request, self.peer, self._pipelines, self._jobs)
            return self._api.answer(request)
        except Refused as refused:
            return refused.answer
