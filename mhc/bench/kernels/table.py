"""A run as Markdown tables, which also read well in a terminal."""

from collections.abc import Sequence

from mhc.bench.kernels.record import COMPILE, GOLDEN, STAGES, Row, Shape, Timing, bounds
from mhc.bench.markdown import aligned
from mhc.operators.mhc_pre.table import PRE

_NONE = "-"
_REFERENCES = (GOLDEN, COMPILE)
_COSTS = {
    "forward us": ("forward", "host_us", 1),
    "backward us": ("backward", "host_us", 1),
    "mhc_pre us": ("forward", "entry_us", 1),
    "forward scratch MiB": ("forward", "scratch_mib", 2),
    "backward scratch MiB": ("backward", "scratch_mib", 2),
}
"""Stage, field and digits of each column."""


def render(rows: Sequence[Row], *, setting: str, command: str, bandwidth: float) -> str:
    """Return the whole document: header, times of the forward and the backward, host time and scratch, accuracy, notes.

    Args:
        setting: day, GPU and versions. bandwidth: TB/s of the bounds.
    """
    parts = [_HEADER.format(setting=setting, command=command, bandwidth=bandwidth)]
    for title, stage in (("Forward", "forward"), ("Backward", "backward")):
        parts += [f"## {title}, median ms", _times(rows, stage, bandwidth)]
    parts += ["## CPU time to issue a call, and scratch memory", _costs(rows)]
    parts += ["## Accuracy: largest |error| against float64 (largest |error| / bound)", _accuracy(rows)]
    notes = _notes(rows)
    if notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join(parts) + "\n"


def progress(shape: Shape, timing: Timing) -> str:
    """Return a timing as a line for a terminal."""
    return f"{shape!s:16} {timing.stage:8} {timing.label:20} {_cell(timing)} {timing.error or timing.refused or 'ms'}"


_HEADER = """# Kernels, measured side by side

What every implementation of mHC pre needs in time and memory at one shape, and how accurate it is, beside `torch.compile`.

{setting}

    {command}

x is bfloat16, gamma is present; one process, one device. A time is the median of `triton.testing.do_bench` in milliseconds.

*golden* is the eager formula; its backward is autograd's alone, through a graph kept from one forward (`retain_graph`).
*compile* is the same formula under `torch.compile(dynamic=False)` with float32 matrix products; its backward is the faster
of the one written by hand (manual) and autograd's through the compiled forward (autograd, again without the forward).

The bounds are the bytes that must move at {bandwidth:g} TB/s. Two passes: x twice and h_in once; x and dh_in twice
and dx once. One pass: each of them once."""


def _times(rows: Sequence[Row], stage: str, bandwidth: float) -> str:
    names = _names(rows)
    kernels = [name for name in names if name not in _REFERENCES]
    prefixes = [f"{name}: " if len(kernels) > 1 else "" for name in kernels]
    head = ["B,S,n,D", *names]
    if COMPILE in names:
        head += [f"{prefix}x faster than compile" for prefix in prefixes]
    head += ["one-pass bound", "two-pass bound", *(f"{prefix}two-pass bound / measured" for prefix in prefixes)]
    lines = []
    for row in rows:
        one_pass, two_pass = bounds(row.shape, stage, bandwidth)
        cells = [str(row.shape), *(_cell(row.fastest(name, stage)) for name in names)]
        if COMPILE in names:
            compiled = getattr(row.fastest(COMPILE, stage), "ms", None)
            cells += [_ratio(compiled, row.fastest(name, stage)) for name in kernels]
        cells += [f"{one_pass:.4f}", f"{two_pass:.4f}"]
        cells += [_ratio(two_pass, row.fastest(name, stage)) for name in kernels]
        lines.append(cells)
    return aligned(head, lines)


def _costs(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        for name in _names([row]):
            timings = {stage: row.fastest(name, stage) for stage in STAGES}
            numbers = [_fixed(getattr(timings[stage], field, None), digits) for stage, field, digits in _COSTS.values()]
            lines.append([str(row.shape), name, *numbers])
    legend = (
        "Issued in batches without waiting for the device, its queue drained between them; the median of the quickest of\n"
        "five blocks. mhc_pre is the forward through the public call under `no_grad`, argument checks included. Scratch is\n"
        "the peak beyond inputs and results; what autograd's graph keeps alive between forward and backward is not in it."
    )
    return f"{legend}\n\n{aligned(['B,S,n,D', '', *_COSTS], lines)}"


def _accuracy(rows: Sequence[Row]) -> str:
    outputs = [spec.name for spec in (*PRE.outputs, *PRE.gradients)]
    lines = []
    for row in rows:
        for name in _names([row]):
            timings = [row.fastest(name, stage) for stage in STAGES]
            found = {key: value for timing in timings if timing is not None for key, value in timing.accuracy.items()}
            if found:
                cells = [f"{found[key].error:.1e} ({found[key].ratio:.2g})" if key in found else _NONE for key in outputs]
                lines.append([str(row.shape), name, *cells])
    legend = "More than 1 of its bound is wrong. The bounds are derived in docs/tolerances.md."
    return f"{legend}\n\n{aligned(['B,S,n,D', '', *outputs], lines)}"


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = []
    for row in rows:
        notes += [f"{row.shape}: {text}" for text in (row.error, row.note) if text is not None]
        for timing in row.timings:
            if timing.ms is None:
                notes.append(f"{row.shape}: {timing.label} {timing.stage} {_cell(timing)}: {timing.error or timing.refused}")
    return notes


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(timing.name for row in rows for timing in row.timings))


def _cell(timing: Timing | None) -> str:
    if timing is None:
        return _NONE
    if timing.error is not None:
        return "raised"
    if timing.refused is not None:
        return "refused"
    return f"{_fixed(timing.ms, 4)} ({timing.variant})" if timing.variant else _fixed(timing.ms, 4)


def _ratio(reference: float | None, timing: Timing | None) -> str:
    """Return a time over that of a contender."""
    return f"{reference / timing.ms:.2f}" if reference is not None and timing is not None and timing.ms else _NONE


def _fixed(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:.{digits}f}"
