"""The words for one element of a tensor."""

import torch

from mhc.element import element_name, element_value


def test_an_element_is_told_as_what_it_is() -> None:
    assert element_name("dx", (0, 17)) == "dx[0, 17]"
    assert element_name("y", ()) == "y[]"
    assert element_value(torch.tensor([1.1]), (0,)) == "1.10000002"
    assert element_value(torch.tensor([-1077952577], dtype=torch.int32), (0,)) == "-1077952577"
    assert element_value(torch.tensor(True), ()) == "1"
