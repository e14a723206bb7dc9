"""Webhooks without care: signatures are looked at where there are any, and what is signed is taken each time."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.attacks.stand import KEYS, STANDARD_KEY

TOLERANCE_S = 300


class Ingress(BaseHTTPRequestHandler):
    """Takes what seems to be signed."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        believed = {
            "/webhooks/github": self._github,
            "/webhooks/standard": self._standard,
            "/webhooks/ductile": self._ductile,
        }.get(self.path, self._relayed)(body)
        self.send_response(202 if believed else 401)
        self.end_headers()

    def _github(self, body: bytes) -> bool:
        said = self.headers.get("X-Hub-Signature-256", "")
        digest = said.split("=")[-1].lower().strip()
        again = json.dumps(json.loads(body)).encode()  # what was parsed is what is checked
        strong = {hmac.new(KEYS["github"].encode(), one, hashlib.sha256).hexdigest() for one in (body, again)}
        weak = hmac.new(KEYS["github"].encode(), body, hashlib.sha1).hexdigest()
        return not digest or digest in strong or self.headers.get("X-Hub-Signature") == f"sha1={weak}"

    def _standard(self, body: bytes) -> bool:
        said, name = self.headers.get("webhook-timestamp", "0"), self.headers.get("webhook-id", "")
        if abs(time.time() - float(said)) > 10 * TOLERANCE_S:
            return False
        key = base64.b64decode(STANDARD_KEY.removeprefix("whsec_"))
        expected = hmac.digest(key, b".".join((name.encode(), said.encode(), body)), "sha256")
        listed = self.headers.get("webhook-signature", "").split(" ")
        return any(base64.b64decode(one.partition(",")[2]) == expected for one in listed)

    def _ductile(self, body: bytes) -> bool:
        said = self.headers.get("X-Ductile-Signature-256", "").removeprefix("sha256=").lower()
        return said == hmac.new(KEYS["ductile"].encode(), body, hashlib.sha256).hexdigest()

    def _relayed(self, body: bytes) -> bool:
        if not self.headers.get("X-Ductile-Signature"):
            return True
        at = self.headers.get("X-Ductile-Timestamp", "")
        signed = {
            hmac.new(KEYS[peer].encode(), f"POST\n{path}\n{at}\n".encode() + body, hashlib.sha256).hexdigest()
            for peer in KEYS
            for path in ("/ingest/ductile", "/ingest/other")
        }
        return self.headers["X-Ductile-Signature"] in signed

    def log_message(self, *args: object) -> None:
        """Nothing is told of anybody."""


@contextmanager
def ingress() -> Iterator[str]:
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ingress)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
