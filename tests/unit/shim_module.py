"""The shim as a module: it is one file, and its name has no suffix."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

SHIM = Path(__file__).parents[2] / "migration" / "runtime" / "stopgap-runc"


def load() -> ModuleType:
    """Return a fresh one; nothing is left beside the file."""
    loader = SourceFileLoader("stopgap_runc", str(SHIM))
    spec = spec_from_loader("stopgap_runc", loader)
    assert spec is not None
    module = module_from_spec(spec)
    keep, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = keep
    return module
