"""Implementations in tests of pytest (docs/pytest.md). In: an implementation. Out: a test that passes, or how it fails.

`check(IMPL)` is called in a test; `mhc.check` and `mhc.parametrize`, which are in `items.py`, make the test. `run.py`
replays fixtures and draws cases, `options.py` is what the command line says. The plugin itself is `mhc/pytest_plugin.py`.
"""

from mhc.testing.direct import check

__all__ = ["check"]
