"""Mutants of the plain PyTorch implementation with right mathematics that break the contract of an implementation."""

from functools import partial

from mhc.oracles.mutants.record import Mutant

_formula = partial(Mutant, base="manual", file="formula")
_golden = partial(Mutant, base="manual", file="torch.golden")
_entry = partial(Mutant, base="manual", file="torch.implementations")

_FORWARD = "    with float32_matmuls(x.device.type):\n"
_BACKWARD = "    with float32_matmuls(x.device.type), torch.no_grad():"
_CALL = "mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps)"
_RETURN = f"        return {_CALL}"

CONTRACT = (
    _golden(
        name="strides_ignored",
        bug="row stride taken for a contiguous one",
        source="aiter #4432",
        hidden=True,
        old="[None if tensor is None else dense(tensor)[0] for tensor in arguments.values()]",
        new="[\n        None if tensor is None\n        else torch.empty_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)\n"
        "        if 0 in tensor.stride() or not tensor.numel()\n"
        "        else tensor.as_strided(tensor.shape, torch.empty(tensor.shape).stride())\n"
        "        for tensor in arguments.values()\n    ]",
    ),
    _golden(
        name="storage_offset_ignored",
        bug="the storage offset of a view dropped",
        hidden=True,
        old="dense(tensor)[0] for tensor",
        new="dense(tensor.as_strided(tensor.shape, tensor.stride(), 0))[0] for tensor",
    ),
    _formula(
        name="phi_folded_in_place",
        bug="writes into an input: gamma folded into the caller's phi",
        hidden=True,
        old="weighted @ phi.mT",
        new="(weighted @ phi.mT if gamma is None else flat @ phi.mul_(gamma.reshape(K)).mT)",
    ),
    _formula(
        name="zeros_for_5_streams",
        bug="refuses nothing but returns zeros for n = 5",
        old="return Forward(h_in.to(x.dtype), h_post,",
        new="return Forward(h_in.to(x.dtype) * (n != 5), h_post,",
    ),
    _golden(
        name="raises_for_odd_widths",
        bug="raises for D not a multiple of 16",
        old=_FORWARD,
        new="    if x.shape[3] % 16:\n        raise ValueError('D must be a multiple of 16')\n" + _FORWARD,
    ),
    _golden(
        name="raises_for_few_tokens",
        bug="backward fails below 128 tokens unless they are a power of two",
        source="Megatron-LM #7524",
        old=_BACKWARD,
        new="    N = x.shape[0] * x.shape[1]\n    assert N >= 128 or N & (N - 1) == 0, 'arange must be a power of two'\n"
        + _BACKWARD,
    ),
    _golden(
        name="refuses_late",
        bug="says that it takes a case, and refuses from inside the kernel",
        old=_FORWARD,
        new="    if x.shape[2] == 3:\n        from mhc.implementation import Refused\n\n        raise Refused('3 streams')\n"
        + _FORWARD,
    ),
    _golden(
        name="hangs_without_tokens",
        bug="hangs for S = 0",
        old=_FORWARD,
        new="    while x.shape[1] == 0:\n        pass\n" + _FORWARD,
    ),
    _golden(
        name="crashes_for_many_streams",
        bug="illegal address for n > 8",
        old=_FORWARD,
        new="    if x.shape[2] > 8:\n        __import__('ctypes').string_at(0)\n" + _FORWARD,
    ),
    _golden(
        name="exits_for_wide_rows",
        bug="the process ends for D > 256, with status 0",
        old=_BACKWARD,
        new="    if x.shape[3] > 256:\n        __import__('os')._exit(0)\n" + _BACKWARD,
    ),
    _entry(
        name="sum_order_drawn_anew",
        bug="a sum whose order changes from run to run, as with atomics; every result is inside the bound",
        hidden=True,
        emulated="K is permuted at random before the projection",
        old=_RETURN,
        new="        own = globals().setdefault('_OWN', torch.Generator())\n"
        "        order = torch.randperm(x.shape[3], generator=own)\n"
        "        B, S, n, D = x.shape\n"
        "        phi = phi.reshape(-1, n, D)[:, :, order].reshape(phi.shape)\n"
        "        gamma = None if gamma is None else gamma[:, order]\n"
        "        h_in, *rest = mhc_forward_pre(\n"
        "            x[..., order], phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps\n"
        "        )\n"
        "        return (h_in[..., order.argsort()], *rest)",
    ),
    _entry(
        name="output_of_the_last_call_reused",
        bug="the result is a workspace that the next call overwrites",
        hidden=True,
        old=_RETURN,
        new=f"        h_in, *rest = {_CALL}\n"
        "        kept = globals().setdefault('_KEPT', {}).setdefault((h_in.shape, h_in.dtype), torch.empty_like(h_in))\n"
        "        return (kept.copy_(h_in), *rest)",
    ),
    _entry(
        name="wrong_now_and_then",
        bug="a race between two writers: one run in four is wrong by one token",
        emulated="a coin decides",
        old=_RETURN,
        new=f"        h_in, *rest = {_CALL}\n"
        "        own = globals().setdefault('_OWN', torch.Generator())\n"
        "        return (h_in.roll(1, 1) if torch.rand((), generator=own) < 0.25 else h_in, *rest)",
    ),
)
