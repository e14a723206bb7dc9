"""The HTTP session under the SDK's exporters: no proxy, and no login of ~/.netrc, that nobody asked for."""

import os
from collections.abc import Mapping

import requests

from groundwork.telemetry.settings import Receiver

_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def session_for(receiver: Receiver, environ: Mapping[str, str] = os.environ) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.verify = next((environ[name] for name in _CERTIFICATES if environ.get(name)), True)
    if receiver.proxy:
        session.proxies = {"http": receiver.proxy, "https": receiver.proxy}
    return session
