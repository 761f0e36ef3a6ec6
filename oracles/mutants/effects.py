"""Mutants of the plain PyTorch implementation whose numbers are right and whose manners are not.

Results that share memory, global state left changed, results that come and go, and work that is not ordered on the stream.
"""

from functools import partial

from oracles.mutants.record import Mutant

_golden = partial(Mutant, base="manual", file="torch.golden", hidden=True)
_formula = partial(Mutant, base="manual", file="formula", hidden=True)
_entry = partial(Mutant, base="manual", file="torch.implementations", hidden=True)

_BACKWARD = "        return formula.backward(*_dense(arguments), norm_eps=norm_eps, hc_eps=hc_eps)"
_FORWARD = "        return mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps)"
_RETURNED = "    return Backward(dx.to(x.dtype), dphi, dalpha, dbias, dgamma)"
_CALL = _FORWARD.strip().removeprefix("return ")

ALIASING = (
    _formula(
        name="zeros_shared_by_gradients",
        bug="without tokens, dalpha and dbias are views of one buffer of zeros",
        old=_RETURNED,
        new="    if N == 0:\n        dbias = torch.zeros(M, dtype=dphi.dtype, device=dphi.device)\n        dalpha = dbias[:3]\n"
        + _RETURNED,
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
        new="        results = formula.backward(*_dense(arguments), norm_eps=norm_eps, hc_eps=hc_eps)\n"
        "        return results._replace(dx=x.copy_(results.dx)) if x.shape[2] == 1 and 0 not in x.stride() else results",
    ),
    _golden(
        name="dalpha_into_a_saved_tensor",
        bug="without gamma, dalpha lies in what was saved of h_mix",
        old=_BACKWARD,
        new="        results = formula.backward(*_dense(arguments), norm_eps=norm_eps, hc_eps=hc_eps)\n"
        "        if gamma is not None or not h_mix.numel():\n            return results\n"
        "        return results._replace(dalpha=h_mix.reshape(-1)[:3].copy_(results.dalpha))",
    ),
)

STATE = (
    _entry(
        name="generator_seeded",
        bug="seeds PyTorch's generator, for results that are the same each time",
        old=_FORWARD,
        new="        torch.manual_seed(0)\n" + _FORWARD,
    ),
    _golden(
        name="seed_drawn",
        bug="draws a seed from the global generator in the backward, for more than 4 streams",
        old=_BACKWARD,
        new="        if x.shape[2] > 4:\n            torch.randint(1 << 30, ())\n" + _BACKWARD,
    ),
    _entry(
        name="split_drawn",
        bug="draws from Python's generator, for rows of more than 16 elements",
        old=_FORWARD,
        new="        if x.shape[3] > 16:\n            __import__('random').random()\n" + _FORWARD,
    ),
    _entry(
        name="numpy_seeded",
        bug="seeds NumPy's global generator where gamma is absent",
        old=_FORWARD,
        new="        if gamma is None:\n            __import__('numpy').random.seed(0)\n" + _FORWARD,
    ),
    _entry(
        name="default_dtype_left",
        bug="the default dtype is left at that of x",
        old=_FORWARD,
        new="        torch.set_default_dtype(x.dtype)\n" + _FORWARD,
    ),
    _golden(
        name="grad_mode_left_off",
        bug="grad mode is left off behind the backward, where gamma is absent",
        old="        return formula.backward(*_dense(arguments), norm_eps=norm_eps, hc_eps=hc_eps)\n",
        new="        results = formula.backward(*_dense(arguments), norm_eps=norm_eps, hc_eps=hc_eps)\n"
        "    if gamma is None:\n        torch.set_grad_enabled(False)\n    return results\n",
    ),
    _entry(
        name="precision_left_high",
        bug="float32 products are left at TF32 behind the forward, for K > 64",
        old=_FORWARD,
        new=f"        results = {_CALL}\n"
        "        if x.shape[2] * x.shape[3] > 64:\n            torch.set_float32_matmul_precision('high')\n        return results",
    ),
    _entry(
        name="deterministic_left_on",
        bug="deterministic algorithms are left on",
        old=_FORWARD,
        new="        torch.use_deterministic_algorithms(True)\n" + _FORWARD,
    ),
    _entry(
        name="threads_left",
        bug="the number of threads is left at 2, for more than 64 tokens",
        old=_FORWARD,
        new="        if x.shape[0] * x.shape[1] > 64:\n            torch.set_num_threads(2)\n" + _FORWARD,
    ),
    _entry(
        name="benchmark_left_on",
        bug="cudnn.benchmark is left on",
        old=_FORWARD,
        new="        torch.backends.cudnn.benchmark = True\n" + _FORWARD,
    ),
)

PRESENCE = (
    _formula(
        name="dphi_missing_past_64_tokens",
        bug="dphi is None for more than 64 tokens",
        old=_RETURNED,
        new="    if N > 64:\n        dphi = None\n" + _RETURNED,
    ),
    _formula(
        name="dgamma_missing_for_many_streams",
        bug="dgamma is None for more than 8 streams",
        old=_RETURNED,
        new="    if n > 8:\n        dgamma = None\n" + _RETURNED,
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
    _formula(
        name="no_gradients_in_float16",
        bug="every gradient is None in float16",
        old=_RETURNED,
        new="    if x.dtype == torch.float16:\n        return Backward(None, None, None, None, None)\n" + _RETURNED,
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
        new="        results = formula.backward(*_dense(arguments), norm_eps=norm_eps, hc_eps=hc_eps)\n"
        "        side = torch.cuda.Stream(x.device)\n"
        "        side.wait_stream(torch.cuda.current_stream(x.device))\n"
        "        with torch.cuda.stream(side):\n"
        "            torch.cuda._sleep(1 << 20)\n"
        "            again = formula.backward(*_dense(arguments), norm_eps=norm_eps, hc_eps=hc_eps)\n"
        "        return results._replace(dphi=again.dphi)",
    ),
)

EFFECTS: tuple[Mutant, ...] = (*ALIASING, *STATE, *PRESENCE, *STREAMS)
