"""Small cases of an implementation from outside, judged by every gate."""

from typing import Any

from mhc import Implementation, default_case
from mhc.fuzz.check.check import check
from mhc.oracles.verdict import Status


def failing(implementation: Implementation, *, dtypes: tuple[str, ...] = ("float32", "bfloat16")) -> list[str]:
    """Return what fails, each once, as output, symptom and gate; at least one output must have been judged.

    Axes of tokens have 3 positions and others 5, as far as their ranges allow.
    """
    table, found, judged = implementation.table, dict[str, None](), 0
    sizes: dict[str, Any] = {
        axis.name: min(max(axis.least, 3 if axis.name in table.tokens else 5), axis.most) for axis in table.axes
    }
    for dtype in [one for one in dtypes if one in implementation.dtypes]:
        verdicts = check(implementation, default_case(operator=table.name, dtype=dtype, **sizes), "cpu").verdicts
        judged += sum(one.oracle == "bound" and one.status is not Status.NOT_APPLICABLE for one in verdicts)
        found |= {f"{one.subject}: {one.symptom} ({one.oracle})": None for one in verdicts if one.status is Status.FAIL}
    assert judged
    return list(found)
