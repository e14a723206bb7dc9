"""The fake Ductile as tests see it: a server in threads of its own, behaviours, faults and what was executed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from tests.ductile.fake.api import Api
from tests.ductile.fake.behaviours import Behaviour
from tests.ductile.fake.catalog import Catalog, Pipeline
from tests.ductile.fake.dispatch import Dispatcher
from tests.ductile.fake.faults import Faults
from tests.ductile.fake.hub import Hub
from tests.ductile.fake.ingress import PATH, Ingress
from tests.ductile.fake.jobs import Job, Jobs
from tests.ductile.fake.probing import probe
from tests.ductile.fake.server import Server
from tests.ductile.fake.wire import Answer, Refused, Request
from tests.ductile.under_test import PROBE, TOKENS, Execution, Peer

Version = Literal["M", "N"]


class FakeDuctile:
    """A Ductile that listens on a free port of the loopback interface from the moment it is made.

    Use it as a context manager, or close it. It knows the probe plugin and the pipelines that start it.
    version: "M" is the measured one, "N" the newer one with narrower scopes and earlier deduplication.
    backoff_seconds: before the second attempt; doubled for each further one.
    """

    def __init__(
        self,
        *,
        version: Version = "M",
        tokens: Mapping[str, tuple[str, ...]] = TOKENS,
        peer: Peer | None = None,
        backoff_seconds: float = 0.05,
    ) -> None:
        self.faults = Faults()
        self.peer = peer or Peer()
        self.tokens: Mapping[str, str] = {name: f"token-of-{name}" for name in tokens}
        self.executions: list[Execution] = []
        self._backoff_seconds = backoff_seconds
        self._behaviours: dict[tuple[str, str], Behaviour] = {}
        self._catalog, self._jobs = Catalog(), Jobs(outstanding_are_duplicates=version == "N")
        self._ingress = Ingress(self.peer, self._catalog, enqueue=self._enqueue)
        scopes = {self.tokens[name]: tokens[name] for name in tokens}
        self._api = Api(
            self._jobs,
            self._catalog,
            version=version,
            tokens=scopes,
            hub=lambda: self._hub,
            enqueue=self._enqueue,
        )
        self._install_probe()
        self._begin_life(port=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def publish(self, event: str, data: dict[str, Any]) -> None:
        """Put an event on the stream, such as a `scheduler.tick`, with which Ductile floods its ring."""
        self._hub.publish(event, data)

    def prune(self, job_id: str) -> None:
        """Forget a job, as after its retention; its line in /job-logs stays."""
        self._jobs.prune(job_id)

    def kill(self) -> None:
        """Stop listening and drop all connections. What runs goes on, but nobody takes note of it."""
        self._dispatcher.end()
        self._server.close()
        self._hub.cut()

    def start(self) -> None:
        """Listen again at the same address: running jobs are queued again, event ids begin at 1."""
        self._begin_life(port=self._server.port)
        self._dispatcher.recover()

    def close(self) -> None:
        """End it for good; closing twice changes nothing."""
        if not self._server.closing.is_set():
            self.kill()

    def _begin_life(self, *, port: int) -> None:
        self._hub = Hub()
        self._dispatcher = Dispatcher(
            self._jobs,
            self._catalog,
            hub=self._hub,
            behaviours=self._behaviours,
            executions=self.executions,
            backoff_seconds=self._backoff_seconds,
        )
        self._server = Server(port, self.faults, answer=self._answer)

    def _answer(self, request: Request) -> Answer:
        try:
            if request.method == "POST" and PATH.fullmatch(request.path):
                return self._ingress.accept(request)
            return self._api.answer(request)
        except Refused as refused:
            return refused.answer

    def _enqueue(self, job: Job, event: str = "", data: Mapping[str, Any] | None = None) -> str:
        """The id of the job, or of the one that it repeats. The stream is told nothing where `event` is empty."""
        repeated = self._jobs.add(job)
        if repeated is None:
            if event:
                self.publish(event, {"job_id": job.job_id, "submitted_by": job.submitted_by, **(data or {})})
            self._dispatcher.start(job)
        return repeated or job.job_id

    def _install_probe(self) -> None:
        self.plugin(PROBE)
        for command in ("handle", "look", "note"):
            self.on("probe", command, probe)
        self.pipeline("probe-asked", on="probe.asked", plugin="probe")
        self.pipeline("probe-emitted", on="probe.emitted", plugin="probe")
