"""Fixtures shared by the tests of several commands."""

from tests.cli.dev_stack import dev as dev
from tests.cli.dev_stack import done as done
