"""What sends telemetry by OTLP: outages of a receiver told once, a session without proxy or ~/.netrc.

OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word on the resource.
"""

import logging
import os
from collections.abc import Collection, Mapping

import requests
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource

from groundwork.service.installed import installed_version
from groundwork.telemetry.settings import Receiver

log = logging.getLogger(__name__)


class Outage(logging.Handler):
    """Of the receiver of one `signal`. What the SDK logs of a batch first (`loggers`) is the reason."""

    def __init__(self, signal: str, address: str, loggers: Collection[str]) -> None:
        super().__init__(logging.WARNING)
        self._facts = {"signal": signal, "receiver": address}
        self._loggers = [logging.getLogger(name) for name in loggers]
        self._why = ""
        self._away = False
        for talkative in self._loggers:
            talkative.propagate = False
            talkative.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._why = self._why or record.getMessage()

    def note(self, *, taken: bool) -> None:
        if not taken and not self._away:
            log.warning("telemetry is not taken: runs go on without it", extra=self._facts | {"why": self._why})
        if taken and self._away:
            log.warning("telemetry is taken again", extra=self._facts)
        self._away, self._why = not taken, ""

    def over(self) -> None:
        for talkative in self._loggers:
            talkative.removeHandler(self)


_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def session_for(receiver: Receiver, environ: Mapping[str, str] = os.environ) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.verify = next((environ[name] for name in _CERTIFICATES if environ.get(name)), True)
    if receiver.proxy:
        session.proxies = {"http": receiver.proxy, "https": receiver.proxy}
    return session


def resource_of(service: str) -> Resource:
    ours = Resource({SERVICE_NAME: service, SERVICE_VERSION: installed_version()})
    return ours.merge(OTELResourceDetector().detect())
