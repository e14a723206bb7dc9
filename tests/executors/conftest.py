"""A real bus for executors that stand beside each other."""

from tests.nats_server import link as link
from tests.nats_server import nats_server as nats_server
from tests.nats_server import unused_port as unused_port
