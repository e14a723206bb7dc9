"""Restores the logging of the test run after a test that sets it up as a service does."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logging_kept() -> Iterator[None]:
    handlers, level, raising = logging.root.handlers[:], logging.root.level, logging.raiseExceptions
    try:
        yield
    finally:
        logging.root.handlers[:], logging.raiseExceptions = handlers, raising
        logging.root.setLevel(level)
