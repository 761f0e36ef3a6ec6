"""The measurements of one run, as frozen records; and the least time that memory traffic allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

STAGES = ("forward", "backward")
GOLDEN = "golden"
COMPILE = "compile"

_X_BYTES = 2  # bfloat16


@dataclass(frozen=True)
class Shape:
    """B batch, S sequence, n residual streams, D hidden size, of a bfloat16 x with gamma."""

    B: int
    S: int
    n: int
    D: int

    def __str__(self) -> str:
        return f"{self.B},{self.S},{self.n},{self.D}"


DEFAULT_SHAPES = (
    Shape(4, 2048, 4, 4096),
    Shape(1, 2048, 4, 1280),
    Shape(2, 64, 4, 128),
    Shape(4, 2048, 1, 4096),
    Shape(4, 2048, 2, 4096),
    Shape(2, 2048, 8, 2048),
    Shape(1, 2048, 16, 1024),
    Shape(1, 4096, 4, 7168),
    Shape(32, 2048, 4, 1024),
    Shape(2, 2048, 5, 1111),
)


def bounds(shape: Shape, stage: str, bandwidth: float) -> tuple[float, float]:
    """Return the least milliseconds of a stage, in one pass and in two, at `bandwidth` in TB/s (10**12 bytes a second).

    forward   x once or twice, h_in once
    backward  x and dh_in once or twice, dx once
    The first pass must see all of x before the gates are known, so the second reads it again, unless a cache holds it.
    Only tensors of x's dtype count; what is M or n wide is left out.
    """
    narrow = shape.B * shape.S * shape.D * _X_BYTES  # h_in, dh_in
    x = narrow * shape.n
    once = narrow if stage == "forward" else x
    each = x if stage == "forward" else x + narrow
    per_ms = bandwidth * 1e9
    return (once + each) / per_ms, (once + 2 * each) / per_ms


@dataclass(frozen=True)
class Deviation:
    """The largest |error| of one output against float64, and the largest |error| / bound; 1 is the most allowed."""

    error: float
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One stage of one contender at one shape.

    Attributes:
        variant: which of several ways to compute the same, where there are several.
        ms: median device time of a call, milliseconds.
        host_us: median CPU time to issue a call, microseconds; entry_us the same through `mhc_pre`, with its checks.
        scratch_mib: device memory at the peak of a call beyond inputs and outputs, MiB.
        accuracy: by output.
        refused: why the contender does not take the shape. error: the exception that it raised.
    """

    name: str
    stage: str
    variant: str = ""
    ms: float | None = None
    host_us: float | None = None
    entry_us: float | None = None
    scratch_mib: float | None = None
    accuracy: Mapping[str, Deviation] = field(default_factory=dict)
    refused: str | None = None
    error: str | None = None

    @property
    def label(self) -> str:
        return f"{self.name} ({self.variant})" if self.variant else self.name


@dataclass(frozen=True, kw_only=True)
class Row:
    """Everything measured at one shape. note: why there is no accuracy. error: why there is nothing at all."""

    shape: Shape
    timings: Sequence[Timing] = ()
    note: str | None = None
    error: str | None = None

    def fastest(self, name: str, stage: str) -> Timing | None:
        """Return the fastest variant that was timed; where none was, the first; None where there is none."""
        found = [timing for timing in self.timings if (timing.name, timing.stage) == (name, stage)]
        timed = [timing for timing in found if timing.ms is not None]
        if timed:
            return min(timed, key=lambda timing: timing.ms or 0.0)
        return found[0] if found else None

    @property
    def failed(self) -> bool:
        return self.error is not None or any(timing.error is not None for timing in self.timings)


def first_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
