"""A bound may not drift: on fixed operands, each is the recorded one."""

import json
import math
import re

import pytest
import torch

from tests.oracles import recorded

_NUMBER = re.compile(r"-?[\d.]+(?:e[-+]\d+)?|nan|inf")
RECORDED: recorded.Figures = json.loads(recorded.FILE.read_text(encoding="utf-8"))


def alike(one: str, other: str) -> bool:
    """Return whether two figures are the same but for the last digits of float64, which differ between machines."""
    if _NUMBER.sub("", one) != _NUMBER.sub("", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(a == b or math.isclose(float(a), float(b), rel_tol=1e-8, abs_tol=1e-6) for a, b in pairs)


def check(section: str) -> None:
    """Compare the figures of a section with the recorded ones."""
    seen = set()
    with torch.no_grad():
        for case, call in recorded.SECTIONS[section]():
            now, then = recorded.recorded(call), RECORDED[section].get(case, ["nothing"])
            same = len(now) == len(then) and all(map(alike, now, then))
            assert same, f"{section}, {case}: allows {now}, recorded is {then}; if that is meant: {recorded.COMMAND}"
            seen.add(case)
    assert seen == {*RECORDED[section]}, recorded.COMMAND


def test_aten_operations_allow_what_is_recorded() -> None:
    check("examples")
