"""What several folders of tests share."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def nccl_parser() -> ModuleType:
    """`load`, which reads a topology XML as strictly as NCCL's own parser, and its error `Refused`."""
    name = "nccl_own_parser"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "nccl" / "own_parser.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens are compared at one width, whatever the terminal or the test runner says."""
    monkeypatch.setenv("COLUMNS", "100")
