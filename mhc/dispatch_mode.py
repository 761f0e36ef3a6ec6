"""The base of our modes that see every operation of PyTorch in a block of code."""

import sys
from typing import ClassVar, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that TorchDynamo does not trace, and that does not import it, which takes a process a second.

    PyTorch keeps TorchDynamo out of the modes of others by importing it. Where nothing has imported it, nothing traces.
    """

    _kept_out: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __enter__(self) -> Self:
        mode = type(self)
        if "torch._dynamo" in sys.modules and not mode._kept_out:
            mode.__torch_dispatch__ = torch._disable_dynamo(mode.__torch_dispatch__)  # type: ignore[attr-defined,method-assign]
            mode._kept_out = True
        return super().__enter__()  # type: ignore[no-any-return,no-untyped-call]
