"""The findings of a campaign on minimal programs: which programs show one of them again.

Two programs show the same bug where they fail in the same way, go wrong in the same pass, and one has all operations of the
other. Of what most likely shows a bug again only a few are judged and minimised, fewer each time, so that a bug that many
programs have neither hides others nor takes the time.
"""

import random
from collections import Counter
from collections.abc import Callable

from mhc.fuzz.check.program_check import named_pass
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.oracles.verdict import Verdict
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.languages import AnyProgram, language_of

_JUDGED = 10  # of so many programs with all operations of a finding one is judged; of more, each time it is met again


class FoundPrograms:
    """Answers what was found before."""

    def __init__(self) -> None:
        self._found: dict[frozenset[str], dict[tuple[tuple[str, str], str], Finding]] = {}
        self._met: Counter[frozenset[str]] = Counter()
        self._random = random.Random(0)

    def keep(self, found: Finding) -> None:
        """Remember a finding on a minimal program."""
        assert isinstance(found.case, DrawnProgram)
        alike = self._found.setdefault(operations_of(found.case), {})
        alike.setdefault((kind_of(found.fingerprint), named_pass(found.message)), found)

    def left_out(self, program: AnyProgram) -> bool:
        """Return whether not to judge a program: it has all operations of a finding. Of these some are judged, by chance."""
        mine = operations_of(program)
        met = [self._met[operations] for operations in self._found if operations <= mine]
        return bool(met) and self._random.randrange(_JUDGED * (1 + max(met))) > 0

    def shown_again(self, program: AnyProgram, kind: tuple[str, str], wrong_pass: Callable[[], str]) -> Finding | None:
        """Return the finding that a failing program shows again, if there is one."""
        mine = operations_of(program)
        met = {operations: alike for operations, alike in self._found.items() if operations <= mine}
        if not any(kind == other for alike in met.values() for other, _ in alike):
            return None
        wrong = wrong_pass()
        for operations, alike in met.items():
            if (kind, wrong) in alike:
                self._met[operations] += 1
                return alike[kind, wrong]
        return None

    def reached(self, program: AnyProgram) -> bool:
        """Return whether a program has exactly the operations of a finding."""
        return operations_of(program) in self._found

    def taken_as_seen(self, found: Finding) -> bool:
        """Return whether a program that shows a finding again is not minimised. Some are all the same, by chance."""
        assert isinstance(found.case, DrawnProgram)
        return self._random.randrange(1 + self._met[operations_of(found.case)]) > 0


def kind_of(failure: Verdict | Fingerprint) -> tuple[str, str]:
    """Return which failures may be of one bug: those of one oracle with one symptom."""
    return failure.oracle, failure.symptom


def operations_of(program: DrawnProgram) -> frozenset[str]:
    """Return the operations that a program's signature names."""
    return frozenset(language_of(program).signature(program).split(", "))
