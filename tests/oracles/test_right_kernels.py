"""Right kernels of the built-in operators, whose order of operations is not the reference's, have no findings."""

import pytest

from mhc.bench.operators import Share, checked
from tests.support.right_kernels import DTYPES, RIGHT


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operator", RIGHT)
def test_a_right_kernel_has_no_findings(operator: str, dtype: str) -> None:
    row = checked(RIGHT[operator], Share(operator, dtype, 0, 8), 7, "cpu")
    assert row["alarms"] == []
    assert row["cases"] > 4
