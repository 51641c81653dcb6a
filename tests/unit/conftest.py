"""The shim as a module, for the tests of its parts."""

from types import ModuleType

import pytest

from tests.unit import shim_module


@pytest.fixture(scope="module")
def shim() -> ModuleType:
    return shim_module.load()
