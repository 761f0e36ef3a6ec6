"""A device that is not there: tensors that say they are on it, compute on the CPU, and mix with no others.

So a machine without a GPU shows what a GPU would be asked, from which part of the program, and where tensors of two devices
meet. What is allocated there has no canaries, since `mhc.memory` leaves subclasses of Tensor alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from mhc.oracles.bounds.carried import Carried

DEVICE = torch.device("meta")
"""The only one without memory whose name works everywhere in PyTorch."""

_READS = frozenset({"_local_scalar_dense", "equal", "nonzero"})
_VIEWS = frozenset({"as_strided", "detach", "slice", "view", "alias", "expand", "select", "transpose", "t", "unsqueeze"})


class FarTensor(Tensor):
    """A tensor on `DEVICE`, which is `near` in truth."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> "FarTensor":
        far: FarTensor = Tensor._make_wrapper_subclass(
            cls,
            near.shape,
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=DEVICE,
            requires_grad=near.requires_grad,
        )
        far.near = near
        return far

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{func} outside of `Watch`")


class Watch(TorchDispatchMode):
    """Carries out what is asked of `DEVICE`, and counts it by where the program was.

    Attributes:
        place: in a word, where the program is now.
        asked: by place and operation. Views are no work and are not counted; "wait" stands for everything that brings back
            a number or a tensor.
        entered: how often the program came to a place.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.place = "elsewhere"
        self.asked: Counter[tuple[str, str]] = Counter()
        self.entered: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        leaves = [leaf for leaf in tree_leaves((args, given)) if isinstance(leaf, Tensor)]
        if any(isinstance(leaf, Carried) for leaf in leaves):
            with self:  # an operation on error-carrying numbers is carried out by others
                return Carried.__torch_dispatch__(func, types, args, given)
        far = any(isinstance(leaf, FarTensor) for leaf in leaves)
        target = given.get("device")
        onto = far if target is None else torch.device(target).type == DEVICE.type
        if not far and not onto:
            return func(*args, **given)
        name = func.overloadpacket.__name__
        if far and name not in {"_to_copy", "copy_", "index"}:
            strangers = [leaf.shape for leaf in leaves if not isinstance(leaf, FarTensor) and leaf.dim()]
            if strangers:
                raise RuntimeError(f"{name}: all tensors must be on {DEVICE}; one of {tuple(strangers[0])} is on the CPU")
        if name not in _VIEWS:
            back = name in _READS or (name == "_to_copy" and not onto)
            self.asked[self.place, "wait" if back else name] += 1
        if target is not None:
            given["device"] = torch.device("cpu")
        near = tree_map(lambda leaf: leaf.near if isinstance(leaf, FarTensor) else leaf, (args, given))
        if name == "_to_copy":  # from the one to the other, memory is never shared
            near[1]["non_blocking"] = False
        result = func(*near[0], **near[1])
        if not onto:
            return result
        with torch.inference_mode(False):  # of a subclass, PyTorch makes no views in that mode
            return tree_map(lambda leaf: FarTensor(leaf) if isinstance(leaf, Tensor) else leaf, result)

    def during(self, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, with what it asks counted under `place`."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            with self.at(place):
                return function(*args, **kwargs)

        return watched

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        before, self.place = self.place, place
        self.entered[place] += 1
        try:
            yield
        finally:
            self.place = before
