"""Fixtures that tests of every folder may ask for, and modules that assert on behalf of tests."""

import pytest

from tests.kit.bus import link as link
from tests.kit.bus import nats_server as nats_server
from tests.kit.bus import unused_port as unused_port

pytest.register_assert_rewrite("tests.core.script", "tests.core.rules")
