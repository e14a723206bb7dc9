"""The certificates of the usual authorities, read once: that takes a twentieth of a second."""

import ssl
from functools import cache


@cache
def usual_authorities() -> ssl.SSLContext:
    return ssl.create_default_context()
