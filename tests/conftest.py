"""For all tests: modules that assert on behalf of tests explain their assertions too."""

import pytest

pytest.register_assert_rewrite("tests.core.script", "tests.core.rules")
