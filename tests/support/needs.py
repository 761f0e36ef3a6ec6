"""What some tests need beside this package. In continuous integration a test that lacks it fails, and is not skipped."""

import os
from collections.abc import Mapping

import pytest

from mhc.operators.mhc_pre.tilelang.compile.dependencies import missing


def skipped_for(reason: str | None, variables: Mapping[str, str]) -> str:
    """Return why a test is skipped that lacks something: empty where it lacks nothing, and in continuous integration."""
    return "" if reason is None or "CI" in variables else reason


WITHOUT_TILELANG = skipped_for(missing("c"), os.environ)
"""Why tests that compile with TileLang on the CPU are skipped; empty where they run."""

needs_tilelang = pytest.mark.skipif(bool(WITHOUT_TILELANG), reason=WITHOUT_TILELANG or "-")
