"""Fixtures that the tests of several commands use."""

from tests.cli.dev_stack import dev as dev
from tests.cli.dev_stack import done as done
