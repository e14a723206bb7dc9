"""Exits 0 if the agent or the gateway of this container answers, else 1.

Other ports are named as arguments.
"""

import sys
from http.client import HTTPConnection, HTTPException

AGENT, GATEWAY = 8700, 8711


def lives(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=3)  # urllib would ask a proxy of the environment
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if any(map(lives, map(int, sys.argv[1:]) or (AGENT, GATEWAY))) else 1)
