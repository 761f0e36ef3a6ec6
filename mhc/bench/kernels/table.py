"""A run as Markdown tables, which also read well in a terminal."""

from collections.abc import Callable, Sequence

from mhc.bench.kernels.record import COMPILE, GOLDEN, STAGES, Bound, Row, Setting, Shape, Timing, bound
from mhc.bench.markdown import aligned
from mhc.operators.mhc_pre.table import PRE

_NONE = "-"
_REFERENCES = (GOLDEN, COMPILE)


def render(setting: Setting, rows: Sequence[Row]) -> str:
    """Return the whole document: header, times of the forward and the backward, host time and scratch, accuracy, notes."""
    parts = [_header(setting)]
    for title, stage in (("Forward", "forward"), ("Backward", "backward")):
        parts += [f"## {title}, median ms", _times(rows, stage, setting.bandwidth)]
    parts += ["## CPU time to issue a call, and scratch memory", _costs(rows)]
    parts += ["## Accuracy: largest |error| against float64 (largest |error| / bound)", _accuracy(rows)]
    notes = _notes(rows)
    if notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join(parts) + "\n"


def progress(shape: Shape, timing: Timing) -> str:
    """Return a timing as a line for a terminal."""
    start = f"{shape!s:16} {timing.stage:8} {timing.label:20}"
    if timing.ms is None:
        return f"{start} {_cell(timing)}: {timing.error or timing.refused}"
    worst = max((deviation.ratio for deviation in timing.accuracy.values()), default=None)
    accuracy = "" if worst is None else f"  error / bound {worst:.2g}"
    costs = f"host {_fixed(timing.host_us, 1)} us  scratch {_fixed(timing.scratch_mib, 1)} MiB"
    return f"{start} {timing.ms:9.4f} ms  {costs}{accuracy}"


def _header(setting: Setting) -> str:
    gpu = f"{setting.gpu}, {setting.multiprocessors} SM"
    return f"""# Kernels, measured side by side

{setting.day} (UTC), {gpu}, torch {setting.torch}, Triton {setting.triton}, CUDA {setting.cuda}

    {setting.command}

x is bfloat16, gamma is present; one process, one device. A time is the median of `triton.testing.do_bench` in milliseconds.

*golden* is the eager formula; its backward is autograd's alone, through a graph kept from one forward (`retain_graph`).
*compile* is the same formula under `torch.compile(dynamic=False)` with float32 matrix products; its backward is the faster
of the one written by hand (manual) and autograd's through the compiled forward (autograd, again without the forward).

The bounds are the bytes that must move at {setting.bandwidth:g} TB/s. Two passes: x twice and h_in once; x and dh_in twice
and dx once. One pass: each of them once."""


def _times(rows: Sequence[Row], stage: str, bandwidth: float) -> str:
    names = _names(rows)
    kernels = [name for name in names if name not in _REFERENCES]
    prefixes = {name: f"{name}: " if len(kernels) > 1 else "" for name in kernels}
    head = ["B,S,n,D", *names]
    for name in kernels:
        head += [f"{prefixes[name]}x faster than compile"] if COMPILE in names else []
    head += ["one-pass bound", "two-pass bound"]
    for name in kernels:
        head += [f"{prefixes[name]}two-pass bound / measured"]
    lines = []
    for row in rows:
        least = bound(row.shape, stage, bandwidth)
        cells = [str(row.shape), *(_cell(row.fastest(name, stage)) for name in names)]
        if COMPILE in names:
            cells += [_faster(row.fastest(COMPILE, stage), row.fastest(name, stage)) for name in kernels]
        cells += [f"{least.one_pass:.4f}", f"{least.two_pass:.4f}"]
        cells += [_share(least, row.fastest(name, stage)) for name in kernels]
        lines.append(cells)
    return aligned(head, lines)


def _costs(rows: Sequence[Row]) -> str:
    head = ["B,S,n,D", "", "forward us", "backward us", "mhc_pre us", "forward scratch MiB", "backward scratch MiB"]
    lines = []
    for row in rows:
        for name in _names([row]):
            forward, backward = (row.fastest(name, stage) for stage in STAGES)
            lines.append(
                [
                    str(row.shape),
                    name,
                    _number(forward, lambda timing: timing.host_us, 1),
                    _number(backward, lambda timing: timing.host_us, 1),
                    _number(forward, lambda timing: timing.entry_us, 1),
                    _number(forward, lambda timing: timing.scratch_mib, 2),
                    _number(backward, lambda timing: timing.scratch_mib, 2),
                ]
            )
    legend = (
        "Issued in batches without waiting for the device, its queue drained between them; the median of the quickest of\n"
        "five blocks. mhc_pre is the forward through the public call under `no_grad`, argument checks included. Scratch is\n"
        "the peak beyond inputs and results; what autograd's graph keeps alive between forward and backward is not in it."
    )
    return f"{legend}\n\n{aligned(head, lines)}"


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


def _faster(reference: Timing | None, timing: Timing | None) -> str:
    if reference is None or reference.ms is None or timing is None or not timing.ms:
        return _NONE
    return f"{reference.ms / timing.ms:.2f}"


def _share(least: Bound, timing: Timing | None) -> str:
    return f"{least.two_pass / timing.ms:.2f}" if timing is not None and timing.ms else _NONE


def _number(timing: Timing | None, pick: Callable[[Timing], float | None], digits: int) -> str:
    return _NONE if timing is None else _fixed(pick(timing), digits)


def _fixed(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:.{digits}f}"
