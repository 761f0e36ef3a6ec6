"""mHC Forward Pre as an `Operator`: the one place where its tensors are listed."""

from collections.abc import Mapping
from types import MappingProxyType

from mhc.operator import Axis, Operator, Regime, Role, TensorSpec
from mhc.operators.mhc_pre import formula
from mhc.operators.mhc_pre.relations import RELATIONS
from mhc.operators.mhc_pre.shapes import MAX_N, PROBES, draw_sizes
from mhc.recipe import Recipe


def derived(sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Return the symbols that follow from the shape of x: N = B*S tokens, K = n*D, M = n*n + 2*n."""
    n = sizes["n"]
    return {"N": sizes["B"] * sizes["S"], "K": n * sizes["D"], "M": n * n + 2 * n}


def sizes(B: int, S: int, n: int, D: int) -> Mapping[str, int]:
    """Return the sizes of all symbols for a shape of x."""
    return PRE.sizes({"B": B, "S": S, "n": n, "D": D})


def usual_exponents(sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Return the exponent of phi's scale: its product with a normalised x is about 1, and a power of two stays exact."""
    return {"phi": -(sizes["K"].bit_length() // 2)}


PRE = Operator(
    name="mhc_pre",
    inputs=(
        TensorSpec("x", ("B", "S", "n", "D"), Role.STORAGE),
        TensorSpec("phi", ("M", "K")),
        TensorSpec("alpha", ("3",)),
        TensorSpec("bias", ("M",)),
        TensorSpec("gamma", ("n", "D"), optional=True),
    ),
    outputs=(
        TensorSpec("h_in", ("B", "S", "D"), Role.STORAGE),
        TensorSpec("h_post", ("B", "S", "n")),
        TensorSpec("h_res", ("B", "S", "n", "n")),
        TensorSpec("inv_rms", ("B", "S")),
        TensorSpec("h_mix", ("B", "S", "M")),
        TensorSpec("h_pre", ("B", "S", "n")),
    ),
    saved=("inv_rms", "h_mix", "h_pre", "h_post"),
    upstream=(
        TensorSpec("dh_in", ("B", "S", "D"), Role.STORAGE),
        TensorSpec("dh_post", ("B", "S", "n")),
        TensorSpec("dh_res", ("B", "S", "n", "n")),
    ),
    gradients=(
        TensorSpec("dx", ("B", "S", "n", "D"), Role.STORAGE),
        TensorSpec("dphi", ("M", "K")),
        TensorSpec("dalpha", ("3",)),
        TensorSpec("dbias", ("M",)),
        TensorSpec("dgamma", ("n", "D"), optional=True),
    ),
    optional_outputs=frozenset({"inv_rms", "h_mix", "h_pre"}),
    scalars=MappingProxyType({"norm_eps": 1e-6, "hc_eps": 1e-6}),
    scalar_choices=dict.fromkeys(("norm_eps", "hc_eps"), (1e-06, 1e-06, 0.0, 1e-12, 0.125, 1.0, 64.0)),
    axes=(Axis("B", least=0), Axis("S", least=0), Axis("n", most=MAX_N), Axis("D")),
    derived=derived,
    forward=formula.forward,
    backward=formula.backward,
    tokens=("B", "S"),
    streams="n",
    blocks={"K": (("n", "D"),), "M": (("n",), ("n",), ("n", "n"))},
    relations=RELATIONS,
    # x of +-1 has inv_rms = 1, and gates without alpha and bias are 1/2: then every gradient is a sum of short products
    exact_recipes={
        "x": Recipe(kind="sign"),
        "alpha": Recipe(kind="zero", literals=(((2,), 1.0),)),
        "bias": Recipe(kind="zero"),
    },
    exact_scalars={"norm_eps": 0.0, "hc_eps": 0.0},
    usual_exponents=usual_exponents,
    regimes={
        "gates saturated": Regime(tensors={"bias": (None, 6, 6)}),
        "gates steep": Regime(tensors={"alpha": (None, 8, 8)}),
        "gates dead": Regime(tensors={"alpha": ("zero", 0, 0)}),
        "x near zero": Regime(tensors={"x": (None, -10, -10)}),
        "x subnormal": Regime(tensors={"x": (None, -130, -130)}),
        # from 2^-63 on squares of float32 are below the normal range, from 2^-75 on they are 0
        "squares subnormal": Regime(tensors={"x": (None, -74, -60)}, scalars={"norm_eps": 0.0}),
    },
    draw_sizes=draw_sizes,
    size_labels={"tokens": "N", "width": "D", "streams": "n"},
    probe_sizes=PROBES,
)
