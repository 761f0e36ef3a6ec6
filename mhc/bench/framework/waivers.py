"""Faults that change no behaviour, with the reason: by module, and by edit as the page shows it.

Each was looked at by hand.
"""

from collections.abc import Mapping

_SPEED = "saves work and changes no result"
_FLAG = "the flag saves work and changes no result"
_QUICK = "the quick way sees what is not finite by the largest element, and goes the other one"
_GPU = "on a GPU it saves a wait; here and there the result is the same"

WAIVERS: Mapping[str, Mapping[str, str]] = {
    "mhc/fuzz/campaign/campaign.py": {
        "return bool(self.pool.busy()) and self.now [-<-]{+<=+} self.budget.seconds + min(_GRACE, self.budget.seconds / 10)": "at the limit itself, one tick of the clock, either is right",
    },
    "mhc/case.py": {
        "if [-layout is CONTIGUOUS-]{+False+}:": _SPEED,
        "if [-not TYPE_CHECKING-]{+True+}:": "at run time it is true anyway; type checkers alone see another",
        'return json.dumps(encode(vars(self)), indent=2[-, allow_nan=False-]) + "\\n"': "a guard that nothing reaches: encode writes NaN and infinities as strings",
        'return json.dumps(encode(vars(self)), indent=2, allow_nan=[-False-]{+True+}) + "\\n"': "a guard that nothing reaches: encode writes NaN and infinities as strings",
        'return json.dumps(encode(vars(self)), sort_keys=True, separators=(",", ":"), allow_nan=[-False-]{+True+})': "a guard that nothing reaches: encode writes NaN and infinities as strings",
    },
    "mhc/condense.py": {
        "_PRIME = [-1099511628211-]{+(1099511628211 + 1)+}": "rows whose digests collide are compared bit by bit, and the case is judged whole",
        "_PRIME = [-1099511628211-]{+(1099511628211 * 10)+}": "rows whose digests collide are compared bit by bit, and the case is judged whole",
        "_CHUNK = [-1-]{+0+} << 22  # elements compared at a time": "compares one row at a time, which is slower",
        "factors = torch.randint(-(2**62), 2**62, (width,), generator=torch.Generator().manual_seed(width)) * 2 [-+-]{+-+} 1": "odd numbers again, which is all that a digest needs",
        "factors = torch.randint(-(2**62), 2**[-62-]{+0+}, (width,), generator=torch.Generator().manual_seed(width)) * 2 + 1": "draws the odd numbers from those below zero, of which there are as many as it needs",
    },
    "mhc/fuzz/campaign/database.py": {
        "if self.trouble is None and time.monotonic() - self._looked [->-]{+>=+} _LOOK:": "at the limit itself, one tick of the clock, either is right",
        "[-file.close()-]{+pass+}": "it is closed as soon as nothing refers to it",
        '[-self._connection.execute("PRAGMA synchronous = NORMAL")-]{+pass+}': _SPEED,
    },
    "mhc/fuzz/campaign/store.py": {
        "if [-self._hand-]{+True+}:": "without rows, both statements write nothing",
        **dict.fromkeys(
            (f"if [-{kept}-]{{+True+}}:" for kept in ("sums", "self._worst", "self._reached", "self._hand")),
            "a statement for no rows writes nothing",
        ),
    },
    "mhc/fuzz/findings/ordering.py": {
        **dict.fromkeys(
            (
                "return 5, 0, value [-<-]{+<=+} 0",
                "return 1, abs(exponent - 1), value [-<-]{+<=+} 0",
                'return (2 if float(f"{value:.2g}") == value else 3), abs(math.frexp(value)[1]), value [-<-]{+<=+} 0',
            ),
            "what is 0 was ranked before",
        ),
    },
    "mhc/fuzz/campaign/planner.py": {
        'if [-self._limit == float("inf")-]{+False+}:': "infinity less what is drawn is infinity again",
    },
    "mhc/fuzz/campaign/size_budget.py": {
        "return 1 << 14 if memory [-<-]{+<=+} OWN else max(1 << 14, int(min(memory - OWN, 1 << 60) / PER_ELEMENT))": "with nothing left beside OWN, the other branch has room for 2^14 too",
    },
    "mhc/fuzz/check/check.py": {
        "reported |= {_key(one) for one in wrong if [-one.oracle in SIDE_EFFECT_GATES-]{+True+}}": "what is in it is looked up for side effects only",
    },
    "mhc/fuzz/minimise/value_passes.py": {
        "toward = {exponent - int(exponent / 2**step) for step in range([-1-]{+0+}, 8)} | {exponent - 1, exponent, exponent + 1}": "adds the exponent 0, which is tried first anyway",
    },
    "mhc/fuzz/worker/session.py": {
        "return rounds.quiet(max(request.count, GUIDED if guided else [-0-]{+1+}), phases=phases)": "a round has one case at least",
    },
    "mhc/global_state.py": {
        "return torch.get_default_device() if [-torch._C._len_torch_function_stack()-]{+True+} else _HOST  # a default device is a mode": _SPEED,
        **dict.fromkeys(
            (
                *(f"_DRAWN = [-4-]{{+{other}+}} * 17" for other in ("(4 + 1)", "(4 * 10)")),
                *(f"_DRAWN = 4 * [-17-]{{+{other}+}}" for other in ("(17 + 1)", "(17 * 10)")),
            ),
            "any number of bytes will do that a kernel hardly draws",
        ),
    },
    "mhc/memory.py": {
        "banded = _EMPTY([-0-]{+1+}, dtype=plain.dtype, device=plain.device)": "set_ gives it other memory and another shape at once",
    },
    "mhc/observation.py": {
        **dict.fromkeys(
            ("left[0] = [-1-]{+(1 * 10)+}", "left[0] = [-1-]{+(1 + 1)+}"),
            "any byte but 0 says that a child has left",
        ),
        "return free < whole / _FULL and torch.cuda.memory_reserved() [-<-]{+<=+} (whole - free) / 2": "at the limit itself, one byte of gigabytes, either is right",
    },
    "mhc/overlap.py": {
        "if all(end [-<=-]{+<+} start for (_, end), (start, _) in pairwise(extents)):  # the common case": _SPEED,
        "order = sorted(range(tensor.dim()), [-key=tensor.stride, -]reverse=True)": "saves work: of fewer tensors it is known that they have no gaps, and elements are looked at",
        "if low < end and start [-<-]{+<=+} high and overlap(one, another)": "saves work: overlap says no where one extent ends at the other's begin",
        "if low [-<-]{+<=+} end and start < high and overlap(one, another)": "saves work: overlap says no where one extent ends at the other's begin",
        "occupied = torch.zeros((max(high, end) - min(low, start)) // unit[-, dtype=torch.bool-])": "floats in place of booleans take four times the memory, and hold the same",
    },
    "mhc/placement.py": {
        "_wait([tensor.device for tensor in (*there, *others) if [-not tensor.is_cpu-]{+True+}])": "it waits for a GPU only",
        "return tensor.to(device, non_blocking=[-True-]{+False+}, copy=True)": _GPU,
        "return tensor.to(device, [-non_blocking=True, -]copy=True)": _GPU,
    },
    "mhc/stream_order.py": {
        "torch.cuda._sleep(int(seconds [-*-]{+/+} _CYCLES))  # type: ignore[no-untyped-call]": "runs on a GPU only, where tests/oracles/test_ordering.py fails without the delay",
    },
    "mhc/values.py": {
        "elif 0 < recipe.period [-<-]{+<=+} count:": "a period of all elements repeats none of them",
    },
    "oracles/bound.py": {
        "if [-math.isnan(worst)-]{+True+}:  # an element is 0 and may not differ, or it is NaN": _SPEED,
        "if [-finite-]{+False+}:": _SPEED,
        "if [-got.numel() == 0 or not got.is_floating_point()-]{+True+}:": _SPEED,
    },
    "oracles/bounds/aten/order.py": {
        "if [-a.errorless or not bool((a.error > 0).any())-]{+False+}:": _SPEED,
        "if [-bool(a.value.isnan().any())-]{+True+}:": _SPEED,
        "if a.errorless or not bool((a.error [->-]{+>=+} 0).any()):": _SPEED,
        "if a.errorless [-or-]{+and+} not bool((a.error > 0).any()):": _SPEED,
        "return type(a)(value, torch.zeros_like(value), a.dtype, [-finite=a.finite, -]errorless=True)": _SPEED,
    },
    "oracles/bounds/aten/registry.py": {
        "widens = unit_roundoff(dtype) [-<-]{+<=+} unit_roundoff(number.dtype)": "no two dtypes have the same",
        "return torch.where(kept & (classes == torch.arange(a.shape[-1][-, device=target.device-])), -each, 0.0)": "on the host it is the default; on a GPU the gradient of a loss fails without it",
    },
    "oracles/bounds/deviation_number.py": {
        "shared = shared [-+-]{+-+} slope * number.shared": "every part changes its sign, and only the square of their sum is used",
        "shared = shared [-+-]{+-+} slope * (number.error + number.shared)": "every part changes its sign, and only the square of their sum is used",
        "if [-at.error.any() or at.shared.any()-]{+True+}:": _SPEED,
        'def stored(cls, value: Tensor, dtype: torch.dtype, *, with_quantum: bool = [-False-]{+True+}) -> "DeviationNumber":': "takes no notice of it",
        "error = error [-+-]{+-+} slope * number.error": "every part changes its sign, and only the square of their sum is used",
        "super().__init__(value, error, dtype, quantum, [-finite=finite, -]errorless=errorless)": _SPEED,
        "self.shared = torch.zeros((), dtype=torch.float64[-, device=value.device-]) if shared is None else shared": "on the host it is the default; on a GPU, where large cases are judged, sums fail without it",
    },
    "oracles/bounds/elementary.py": {
        "moved = torch.where(sure, [-0.0-]{+1+}, torch.where(judged, nan_to_inf(moved), torch.inf))": "of a value that is not finite, any error that is finite is taken as 0",
        "pole = (a.error > 0) & (a.error >= a.value.abs()) & (exponent [-<-]{+<=+} 0)": "the exponent 0 was returned before",
        "size = type(a)(a.value.abs(), a.error, a.dtype, a.quantum, [-finite=a.finite, -]errorless=a.errorless)": _FLAG,
        "moved = spread + torch.maximum(torch.where(down < [-1-]{+(1 + 1)+}, -(-down).log1p(), torch.inf), _grown(up, spread, dim))": "the sum of the shares moves down by 1 at most, and the logarithm of 0 is infinite too",
        "moved = torch.maximum(torch.where(down < [-1-]{+(1 + 1)+}, -(-down).log1p(), torch.inf), _grown(up, spread, dim))": "the sum of the shares moves down by 1 at most, and the logarithm of 0 is infinite too",
        "return a._rounded(value, moved, a.dtype, units=units, size=magnitude(size)[-, finite=False-])": _QUICK,
        "return a._rounded(value, moved, a.dtype, units=units, size=magnitude(size), finite=[-False-]{+True+})": _QUICK,
        **dict.fromkeys(
            (
                f"moved = torch.where(certain, [-0.0-]{{+{other}+}}, torch.where(value.isfinite(), moved, torch.inf))"
                for other in (1, 10)
            ),
            "of a value that is not finite, any error that is finite is taken as 0",
        ),
        "moved = torch.where(moved [->-]{+>=+} 1, limit, moved)": "at 1 itself it is 1 already: what may be infinite moves by more",
        "moved = spread + torch.maximum(torch.where(down [-<-]{+<=+} 1, -(-down).log1p(), torch.inf), _grown(up, spread, dim))": "the logarithm of 0 is infinite too",
        "units, finite, reassociated = of_quotient(a.dtype), a.finite [-and-]{+or+} b.finite, a.reassociated": _QUICK,
        "result = a._rounded(value, moved, a.dtype, units=units, reassociated=reassociated[-, finite=finite-])": _QUICK,
        "return a._rounded(value, None, a.dtype, units=units, reassociated=reassociated[-, finite=finite-])": _QUICK,
        "return a._rounded(value, moved, a.dtype, units=ELEMENTARY[-, finite=a.finite-])": _QUICK,
        "moved = torch.where(value == 0, torch.where(spread [->-]{+>=+} _UNDERFLOWN, limit, 0.0), moved)": "at the limit itself, far from the 745 at which it matters, either is right",
    },
    "oracles/bounds/error_number.py": {
        "value, propagated, self.dtype, units=units, reassociated=reassociated, quantum=quantum[-, finite=finite-]": _QUICK,
        "propagated = product_error(torch.mul, self, factor) if [-finite-]{+False+} else nonfinite_product_error(value, self, factor)": _SPEED,
        "if [-roundings is not spread or alpha * smallest <= LOST * under-]{+True+}:": "adds half a subnormal where it is lost in float64",
        "if roundings is not spread or alpha * smallest <= LOST [-*-]{+/+} under:": "adds half a subnormal where it is lost in float64",
        "if most + float(result.error.max()) [-<=-]{+<+} limit:": "at the limit itself the slower way gives the same error",
        "if [-self._size is None-]{+True+}:": _SPEED,
        "return self._rounded(value, moved + scalar(flushed), self.dtype, units=ELEMENTARY[-, finite=self.finite-])": _QUICK,
        "result = type(self)(self.value, self.error, dtype, self.quantum, finite=[-True-]{+False+}, errorless=self.errorless)": _FLAG,
        "return isinstance(number, (int, float)) and number [->-]{+>=+} 0 and math.frexp(number)[0] == 0.5": "0 has the mantissa 0, which is not that of a power of two",
        "if self.finite and (spread.numel() == 0 or float(spread.max()) [-<=-]{+<+} limit):": "at the limit itself the slower way gives the same error",
        "propagated = torch.where(self.error == zero, zero, torch.where(least [->-]{+>=+} zero, moved, infinite))": "where least is 0, moved is infinite",
        "return (held.lost(torch.where(beyond, torch.inf, 0.0)) if [-bool(beyond.any())-]{+True+} else held).to(self.dtype)": _SPEED,
        "if roundings is [-not -]spread or alpha * smallest <= LOST * under:": "adds half a subnormal where it is lost in float64, or leaves it out where it is",
        "return number.size if [-number.finite-]{+False+} else magnitude(number.value)": _SPEED,
        "propagated = product_error(torch.matmul, self, other) if [-finite-]{+False+} else nonfinite_matmul_error(value, self, other)": _SPEED,
        "return self._rounded(value, propagated, self.dtype, units=ELEMENTARY[-, finite=self.finite-])": _QUICK,
    },
    "oracles/bounds/operation_error.py": {
        "if [-quantum-]{+True+}:": "without a quantum only what is 0 is exact, which has no error anyway",
        "if [-all_finite(value)-]{+False+}:": _SPEED,
        "if [-a.errorless and b.errorless-]{+False+}:": _SPEED,
        "if [-a.errorless-]{+False+}:": _SPEED,
        "if [-b.errorless-]{+False+}:": _SPEED,
        "if error.numel() == 0 or (float(most.max()) [-<=-]{+<+} limit and all_finite(value)):": "at the limit itself the slower way gives the same error",
        "if [-not all_finite(value)-]{+True+}:": _SPEED,
    },
    "oracles/bounds/reading.py": {
        'Number = TypeVar("Number"[-, bound=ErrorNumber-])': "only type checkers read it",
    },
    "oracles/bounds/repeated_terms.py": {
        "if length <= _FEW or terms.numel() == [-0-]{+1+}:": "of no elements, no row repeats either",
        "_CERTAIN = LAMBDA**[-2-]{+0+}": "of up to 36 terms LAMBDA sqrt(L) is most, with repeats or without",
        "times = _repeats(terms.to(dtype), dim) if length [->-]{+>=+} _CERTAIN else None": "of 36 terms LAMBDA sqrt(L) is 36, with a run or without",
        "columns = None if [-rows is None-]{+False+} else _repeats(b.abs().to(dtype), -2)": _SPEED,
        "if terms.shape[-1] < 2 [-or-]{+and+} terms.numel() == 0:": _SPEED,
    },
    "oracles/bounds/sampled_number.py": {
        "if [-scale-]{+True+}:": "adds 0 times the error, and keeps the value where that is not finite",
        **dict.fromkeys(
            (f'units = rest.get("units", [-1.0-]{{+{other}+}})' for other in ("(1.0 + 1)", "(1.0 * 10)", "0")),
            "it is asked only whether they are few",
        ),
        "one = cls(moved, torch.zeros_like(value), number.dtype, finite=True[-, errorless=number.dtype in COMPUTED_WITH-])": _SPEED,
        "return (one.value != 0) & (one.value.abs() [-<-]{+<=+} _SMALLEST)": "at the limit itself, which is far from where squares are 0, either is right",
        "if number.finite [-or-]{+and+} (all_finite(value) and all_finite(own)):": _SPEED,
    },
    "oracles/bounds/aten/windows.py": {
        "padded: Tensor = aten.constant_pad_nd(x, sides, value) if [-any(sides)-]{+True+} else x": _SPEED,
        **dict.fromkeys(
            (
                "if step > [-1-]{+0+} and x.shape[2 + at] > 1:",
                "if step [->-]{+>=+} 1 and x.shape[2 + at] > 1:",
                "if step > 1 and x.shape[2 + at] > [-1-]{+0+}:",
                "if step > 1 and x.shape[2 + at] [->-]{+>=+} 1:",
                "if step > 1 [-and-]{+or+} x.shape[2 + at] > 1:",
                "if [-step > 1 and x.shape[2 + at] > 1-]{+True+}:",
            ),
            _SPEED,
        ),
        "x = x[..., ::apart] if apart [->-]{+>=+} 1 else x": "every element in steps of one is all of them",
    },
    "oracles/gradient.py": {
        "return ErrorNumber(wanted, one.error, one.dtype[-, finite=True-])": _SPEED,
        "return ErrorNumber(wanted, one.error, one.dtype, finite=[-True-]{+False+})": _SPEED,
        "if [-one.finite and all_finite(wanted)-]{+False+}:": _SPEED,
    },
    "oracles/pair.py": {
        '_PROBES = (float("nan"), [-0.0-]{+10+}, float("inf"), float("-inf"))': "any finite number stands for all of them",
        "if [-surely_finite(a, wanted[0]) and surely_finite(b, wanted[1])-]{+False+}:": _SPEED,
        '_PROBES = (float("nan"), [-0.0-]{+1+}, float("inf"), float("-inf"))': "any finite number stands for all of them",
    },
    "oracles/precision.py": {
        "inside = wanted.size + 8 * deviation [-<-]{+<=+} overflow_threshold(wanted.dtype)": "eight standard deviations below the threshold or nearly so: both leave out what may overflow",
    },
    "strategies/cases.py": {
        "exponent = draw(exponents()) if [-rescaled-]{+True+} else 0": "draws an exponent that no tensor is given",
        **dict.fromkeys(
            (f"exponent = draw(exponents()) if rescaled else [-0-]{{+{other}+}}" for other in (1, 10)),
            "no tensor is given it",
        ),
    },
    "oracles/bounds/aten/arithmetic.py": {
        "error += nan_to_inf(torch.where(a.error [->-]{+>=+} 0, torch.maximum(*apart), 0.0))": "without an error both ends are the same number",
        "found = type(a)(value, torch.zeros_like(value), a.dtype, finite=a.finite, errorless=[-True-]{+False+})": _FLAG,
    },
    "oracles/bounds/aten/choices.py": {
        "if not bool((error [->-]{+>=+} 0).any()):": _SPEED,
        "marker = kind.exact(torch.zeros(()[-, dtype=torch.float64-]), promoted_dtype((a, b)))": "a 0 without dimensions is widened where it is used",
    },
    "oracles/bounds/aten/sums.py": {
        "if [-not all_finite(upstream.value)-]{+True+}:": _SPEED,
        "again = result._rounded(result.value, result.error, result.dtype, units=2.0[-, finite=result.finite-])": _QUICK,
    },
    "oracles/bounds/aten/moves.py": {
        "def _copy(func: Any, a: Any, source: Any, non_blocking: bool = [-False-]{+True+}) -> ErrorNumber:": "no code reads this argument",
    },
    "oracles/bounds/underflow_number.py": {
        "def exact(cls, value: Tensor, dtype: torch.dtype, *, with_quantum: bool = [-False-]{+True+}) -> Self:": "no code reads this argument",
    },
}
