"""A program's buffers in memory, between guards that must not be written, and what they hold once it ran."""

from typing import Any

import numpy as np

from mhc.programs.compile_error import CompileError
from mhc.programs.guarded import GUARD, MARK
from mhc.programs.triton.evaluate import inputs_of
from mhc.programs.triton.grammar import TritonProgram
from mhc.programs.triton.values import Array, from_raw, to_raw


class Memory:
    """The buffers of one run."""

    def __init__(self, program: TritonProgram) -> None:
        self._program = program
        self._before = inputs_of(program)
        self._raw: dict[str, Any] = {}

    def tensors(self, device: str) -> list[Any]:
        """Return the buffers as tensors on a device, which are views of the guarded bytes."""
        import torch  # noqa: PLC0415

        made = []
        for one in self._program.buffers:
            array = to_raw(self._before[one.name], one.dtype)
            begin = GUARD + one.offset * array.itemsize
            raw = np.full(array.nbytes + begin + GUARD, MARK, dtype=np.uint8)
            raw[begin : begin + array.nbytes] = array.view(np.uint8)
            self._raw[one.name] = torch.from_numpy(raw).to(device)
            inside = self._raw[one.name][begin : begin + array.nbytes]
            made.append(inside.view(getattr(torch, one.dtype)))
        return made

    def outputs(self) -> dict[str, Array]:
        """Return the outputs that are in memory after the program ran.

        Raises:
            CompileError: it wrote to an input, or outside of a buffer.
        """
        results = {}
        for one in self._program.buffers:
            array, raw = to_raw(self._before[one.name], one.dtype), self._raw[one.name].cpu().numpy()
            begin = GUARD + one.offset * array.itemsize
            if (raw[:begin] != MARK).any() or (raw[begin + array.nbytes :] != MARK).any():
                raise CompileError("run", f"a write outside {one.name}")
            now = raw[begin : begin + array.nbytes]
            if one.written:
                results[one.name] = from_raw(now, one.dtype).copy()
            elif now.tobytes() != array.tobytes():
                raise CompileError("run", f"a write to the input {one.name}")
        return results
