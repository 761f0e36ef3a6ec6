"""The budget of elements follows the seconds that a case takes."""

from mhc.fuzz.sizes import Sizes


def test_it_begins_small_and_slow_cases_make_it_smaller_and_every_eighth_round_has_all_of_it() -> None:
    sizes = Sizes(1 << 15)
    assert sizes.next() == 1 << 11, "nothing is known yet"
    sizes.learn(4.0)
    drawn = [sizes.next() for _ in range(15)]
    assert drawn[:6] == [1 << power for power in (10, 9, 9, 9, 9, 9)]
    assert drawn[6] == drawn[14] == 1 << 15
    assert set(drawn[7:14]) == {1 << 9}


def test_quick_cases_make_it_larger_and_what_is_between_leaves_it() -> None:
    sizes = Sizes(1 << 12)
    assert [sizes.next() for _ in range(2)] == [1 << 11, 1 << 11]
    sizes.learn(2.0)
    assert sizes.next() == 1 << 10
    for _ in range(20):
        sizes.learn(0.5)
    assert sizes.next() == 1 << 10
    for _ in range(40):
        sizes.learn(0.01)
    assert [sizes.next() for _ in range(3)] == [1 << 11, 1 << 12, 1 << 12]


def test_where_little_is_all_there_is_every_round_has_it() -> None:
    sizes = Sizes(1 << 8)
    sizes.learn(0.01)
    assert {sizes.next() for _ in range(10)} == {1 << 8}
