"""Fixtures shared by the tests of several commands."""

from tests.cli.invoke import dev as dev
from tests.cli.invoke import done as done
