#!/usr/bin/env python3
"""Simulated house: the part of Home Assistant's REST API that the tool uses, at HOUSE_URL, until Ctrl-C."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

URL = "http://127.0.0.1:8123"
TURNS = {
    "light/turn_on": "on",
    "light/turn_off": "off",
    "switch/turn_on": "on",
    "switch/turn_off": "off",
    "lock/unlock": "unlocked",
    "lock/lock": "locked",
}
HOUSE = {"light.hall": "on", "light.kitchen": "on", "switch.coffee": "off", "lock.front_door": "locked"}


class Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = [{"entity_id": name, "state": state, "attributes": {}} for name, state in HOUSE.items()]
        self._tell(200, found) if self.path == "/api/states" else self._tell(404, {"message": "not found"})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        service, asked = self.path.removeprefix("/api/services/"), json.loads(self.rfile.read(length) or b"{}")
        if service not in TURNS:
            return self._tell(400, {"message": f"no service {service}"})
        kind = service.partition("/")[0]
        meant = [name for name in HOUSE if name.startswith(kind) and asked.get("entity_id") in (name, "all")]
        HOUSE.update(dict.fromkeys(meant, TURNS[service]))
        return self._tell(200, [{"entity_id": name, "state": HOUSE[name]} for name in meant])

    def _tell(self, status: int, told: object) -> None:
        is_known = self.headers.get("Authorization", "").startswith("Bearer ")
        body = json.dumps(told if is_known else {"message": "401: Unauthorized"}).encode()
        self.send_response(status if is_known else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    place = urlsplit(os.environ.get("HOUSE_URL", URL))
    house = ThreadingHTTPServer((place.hostname or "127.0.0.1", place.port or 8123), Api)
    sys.stdout.write(f"The house listens at http://{place.netloc}\n")
    sys.stdout.flush()
    house.serve_forever()


if __name__ == "__main__":
    main()
