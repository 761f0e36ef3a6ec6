"""The budget of elements follows the seconds that a case takes."""

from mhc.fuzz.sizes import Sizes


def test_slow_cases_make_it_smaller_down_to_a_limit_and_every_eighth_round_has_all_of_it() -> None:
    sizes = Sizes(1 << 15)
    sizes.learn(4.0)
    drawn = [sizes.next() for _ in range(16)]
    assert drawn[:7] == [1 << power for power in (14, 13, 12, 11, 10, 9, 9)]
    assert drawn[7] == drawn[15] == 1 << 15
    assert set(drawn[8:15]) == {1 << 9}


def test_quick_cases_bring_it_back_and_what_is_between_leaves_it() -> None:
    sizes = Sizes(1 << 12)
    assert sizes.next() == 1 << 12, "nothing is known yet"
    sizes.learn(2.0)
    assert [sizes.next(), sizes.next()] == [1 << 11, 1 << 10]
    for _ in range(20):
        sizes.learn(0.5)
    assert sizes.next() == 1 << 10
    for _ in range(40):
        sizes.learn(0.01)
    assert [sizes.next() for _ in range(3)] == [1 << 11, 1 << 12, 1 << 12]
