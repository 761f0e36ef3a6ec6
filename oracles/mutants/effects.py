"""Mutants of the plain PyTorch implementation with right values and wrong side effects.

Results share memory, global state stays changed, results are missing in some cases, or work is unordered on the stream.
"""

from functools import partial

from mhc.oracles.mutants.record import Mutant

_golden = partial(Mutant, base="manual", file="torch.golden", hidden=True)
_formula = partial(Mutant, base="manual", file="formula", hidden=True)
_entry = partial(Mutant, base="manual", file="torch.implementations", hidden=True)

_CALL = "mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps)"
_CALL_BACKWARD = "formula.backward(*_dense(arguments), norm_eps=norm_eps, hc_eps=hc_eps)"
_FORWARD, _BACKWARD = f"        return {_CALL}", f"        return {_CALL_BACKWARD}"
_RETURNED = "    return Backward(dx.to(x.dtype), dphi, dalpha, dbias, dgamma)"


def _before_forward(name: str, bug: str, statements: str) -> Mutant:
    """Return a mutant that runs `statements` before the forward."""
    return _entry(name=name, bug=bug, old=_FORWARD, new=f"        {statements}\n{_FORWARD}")


def _before_backward(name: str, bug: str, statements: str) -> Mutant:
    """Return a mutant that runs `statements` before the backward."""
    return _golden(name=name, bug=bug, old=_BACKWARD, new=f"        {statements}\n{_BACKWARD}")


def _before_return(name: str, bug: str, statements: str) -> Mutant:
    """Return a mutant that runs `statements` on the gradients before they are returned."""
    return _formula(name=name, bug=bug, old=_RETURNED, new=f"    {statements}\n{_RETURNED}")


ALIASING = (
    _before_return(
        "zeros_shared_by_gradients",
        "without tokens, dalpha and dbias are views of one buffer of zeros",
        "if N == 0:\n        dbias = torch.zeros(M, dtype=dphi.dtype, device=dphi.device)\n        dalpha = dbias[:3]",
    ),
    _formula(
        name="one_zero_for_all",
        bug="without tokens, dphi and dgamma are one zero, expanded",
        old=_RETURNED,
        new="    if N == 0 and gamma is not None:\n        zero = dphi.sum()\n"
        "        dphi, dgamma = zero.expand(M, K), zero.expand(n, D)\n" + _RETURNED,
    ),
    _golden(
        name="dx_into_x",
        bug="with one stream, dx is written over x",
        old=_BACKWARD,
        new=f"        results = {_CALL_BACKWARD}\n"
        "        return results._replace(dx=x.copy_(results.dx)) if x.shape[2] == 1 and 0 not in x.stride() else results",
    ),
    _golden(
        name="dalpha_into_a_saved_tensor",
        bug="without gamma, dalpha lies in what was saved of h_mix",
        old=_BACKWARD,
        new=f"        results = {_CALL_BACKWARD}\n"
        "        if gamma is not None or not h_mix.numel():\n            return results\n"
        "        return results._replace(dalpha=h_mix.reshape(-1)[:3].copy_(results.dalpha))",
    ),
)

STATE = (
    _before_forward(
        "generator_seeded", "seeds PyTorch's generator, for results that are the same each time", "torch.manual_seed(0)"
    ),
    _before_backward(
        "seed_drawn",
        "draws a seed from the global generator in the backward, for more than 4 streams",
        "if x.shape[2] > 4:\n            torch.randint(1 << 30, ())",
    ),
    _before_forward(
        "split_drawn",
        "draws from Python's generator, for rows of more than 16 elements",
        "if x.shape[3] > 16:\n            __import__('random').random()",
    ),
    _before_forward(
        "numpy_seeded",
        "seeds NumPy's global generator where gamma is absent",
        "if gamma is None:\n            __import__('numpy').random.seed(0)",
    ),
    _before_forward("default_dtype_left", "the default dtype is left at that of x", "torch.set_default_dtype(x.dtype)"),
    _golden(
        name="grad_mode_left_off",
        bug="grad mode is left off behind the backward, where gamma is absent",
        old=f"{_BACKWARD}\n",
        new=f"        results = {_CALL_BACKWARD}\n"
        "    if gamma is None:\n        torch.set_grad_enabled(False)\n    return results\n",
    ),
    _entry(
        name="precision_left_high",
        bug="float32 products are left at TF32 behind the forward, for K > 64",
        old=_FORWARD,
        new=f"        results = {_CALL}\n"
        "        if x.shape[2] * x.shape[3] > 64:\n            torch.set_float32_matmul_precision('high')\n        return results",
    ),
    _before_forward(
        "deterministic_left_on", "deterministic algorithms are left on", "torch.use_deterministic_algorithms(True)"
    ),
    _before_forward(
        "threads_left",
        "the number of threads is left at 2, for more than 64 tokens",
        "if x.shape[0] * x.shape[1] > 64:\n            torch.set_num_threads(2)",
    ),
    _before_forward("benchmark_left_on", "cudnn.benchmark is left on", "torch.backends.cudnn.benchmark = True"),
)

PRESENCE = (
    _before_return("dphi_missing_past_64_tokens", "dphi is None for more than 64 tokens", "if N > 64:\n        dphi = None"),
    _before_return(
        "dgamma_missing_for_many_streams", "dgamma is None for more than 8 streams", "if n > 8:\n        dgamma = None"
    ),
    _formula(
        name="inv_rms_missing_for_odd_widths",
        bug="inv_rms is None for an odd D",
        old="h_post, h_res, inv_rms, h_mix, h_pre)",
        new="h_post, h_res, None if D % 2 else inv_rms, h_mix, h_pre)",
    ),
    _formula(
        name="saved_missing_without_gamma",
        bug="h_mix is None where gamma is absent",
        old="h_post, h_res, inv_rms, h_mix, h_pre)",
        new="h_post, h_res, inv_rms, None if gamma is None else h_mix, h_pre)",
    ),
    _before_return(
        "no_gradients_in_float16",
        "every gradient is None in float16",
        "if x.dtype == torch.float16:\n        return Backward(None, None, None, None, None)",
    ),
)

_on_a_gpu = partial(_entry, device="cuda", old=_FORWARD)

STREAMS = (
    _on_a_gpu(
        name="side_stream_too_early",
        bug="works on a stream of its own, which does not wait for the inputs",
        new="        side = torch.cuda.Stream(x.device)\n"
        f"        with torch.cuda.stream(side):\n            results = {_CALL}\n"
        "        torch.cuda.current_stream(x.device).wait_stream(side)\n        return results",
    ),
    _on_a_gpu(
        name="side_stream_not_awaited",
        bug="works on a stream of its own, and the current one does not wait for the results",
        new="        side = torch.cuda.Stream(x.device)\n"
        "        side.wait_stream(torch.cuda.current_stream(x.device))\n"
        f"        with torch.cuda.stream(side):\n            return {_CALL}",
    ),
    _on_a_gpu(
        name="default_stream_taken",
        bug="launches on the default stream, whatever the current one is",
        new=f"        with torch.cuda.stream(torch.cuda.default_stream(x.device)):\n            return {_CALL}",
    ),
    _golden(
        name="dphi_read_late",
        device="cuda",
        bug="dphi is computed on a stream of its own after the call has returned, and nothing waits for it",
        old=_BACKWARD,
        new=f"        results = {_CALL_BACKWARD}\n"
        "        side = torch.cuda.Stream(x.device)\n"
        "        side.wait_stream(torch.cuda.current_stream(x.device))\n"
        "        with torch.cuda.stream(side):\n"
        "            torch.cuda._sleep(1 << 20)\n"
        f"            again = {_CALL_BACKWARD}\n"
        "        return results._replace(dphi=again.dphi)",
    ),
)

EFFECTS: tuple[Mutant, ...] = (*ALIASING, *STATE, *PRESENCE, *STREAMS)
