"""Which gates there are, how often each judges in a campaign, and that the cases are chosen evenly."""

from mhc import default_case
from mhc.oracles.gates import GATES
from mhc.oracles.trial import LARGE, Gate, hash_below


def test_the_gates_in_their_order_and_how_often_they_judge() -> None:
    """A gate that is dropped, or that judges more or less often, is a change of what campaigns find: make it here too."""
    found = [(one.name, one.variant, one.every, one.every_large) for one in GATES]
    algebra = [one for one in found if one[0] == "algebra" and one[1] != "declared relation"]
    assert len(algebra) >= 5
    assert {one[2:] for one in algebra} == {(12, None)}
    assert [one for one in found if one not in algebra] == [
        ("gradient", "autograd", 8, None),
        ("gradient", "upstream doubled", 8, None),
        ("gradient", "additive", 12, None),
        ("determinism", "", 4, None),
        ("presence", "simplest", 1, None),
        ("presence", "others", 4, None),
        ("memory", "", 4, None),
        ("ordering", "", 8, None),
        ("ordering", "together", 1, None),
        ("ordering", "together, from the last program to the first", 2, None),
        ("isolation", "", 8, None),
        ("exact", "", 12, None),
        ("precision", "", 8, 2),
        ("algebra", "declared relation", 4, None),
        ("training", "all gradients", 12, None),
        ("training", "some gradients", 24, None),
        ("training", "no upstream gradient", 24, None),
        ("training", "second backward", 12, None),
        ("sequence", "rewritten inputs", 32, None),
        ("sequence", "another dtype", 64, None),
        ("sequence", "other scalars", 64, None),
        ("sequence", "other values", 64, None),
        ("sequence", "", 64, None),
    ]
    assert len({(one.name, one.variant) for one in GATES}) == len(GATES)


def test_a_gate_judges_its_share_of_the_cases() -> None:
    cases = [default_case(B=1, S=at, n=1, D=at % 7 + 1) for at in range(1, 301)]
    large = [default_case(B=1, S=LARGE + at, n=1, D=1) for at in range(300)]

    def share(gate: Gate, some: list[object]) -> float:
        return sum(gate.drawn(one) for one in some) / len(some)  # type: ignore[arg-type]

    def plan(trial: object) -> list[object]:
        return []

    gate = Gate(name="one", plan=plan, every=5, every_large=2)  # type: ignore[arg-type]
    assert 0.13 < share(gate, [*cases]) < 0.27
    assert 0.42 < share(gate, [*large]) < 0.58
    assert 0.13 < share(Gate(name="one", plan=plan, every=5), [*large]) < 0.27  # type: ignore[arg-type]
    assert share(Gate(name="one", plan=plan), [*cases]) == 1  # type: ignore[arg-type]
    other = Gate(name="one", variant="other", plan=plan, every=5)  # type: ignore[arg-type]
    assert [other.drawn(one) for one in cases] != [gate.drawn(one) for one in cases]
    edge = [default_case(B=1, S=LARGE - 1 - at, n=1, D=1) for at in range(300)]
    assert 0.13 < share(gate, [*edge]) < 0.27


def test_a_hash_is_of_the_case_and_of_the_purpose() -> None:
    case = default_case(B=1, S=2, n=1, D=3)
    found = [hash_below(case, f"purpose {at}", 10) for at in range(200)]
    assert set(found) == set(range(10))
    assert found == [hash_below(case, f"purpose {at}", 10) for at in range(200)]
    assert found != [hash_below(default_case(B=1, S=2, n=1, D=4), f"purpose {at}", 10) for at in range(200)]
