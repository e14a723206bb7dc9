"""Fixtures that the tests of several commands use."""

from tests.cli.dev_stack import dev as dev
from tests.cli.dev_stack import done as done
from tests.nats_server import link as link
from tests.nats_server import nats_server as nats_server
from tests.nats_server import unused_port as unused_port
