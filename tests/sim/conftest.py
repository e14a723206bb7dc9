"""Worlds are many and short: they are let go of when they close, and what they would log is not put together."""

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _quick() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()
    logging.disable(logging.NOTSET)
