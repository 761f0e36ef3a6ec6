"""mHC post: the streams are mixed, and the output of the layer is added to each.

    out[o] = sum_i h_res[o, i] x[i] + h_post[o] f

Source: arXiv 2512.24880, eq. 3. x [*B, n, C], f [*B, C], h_post [*B, n], h_res [*B, n, n] -> out [*B, n, C].
`mhc_post_transposed` has h_res[i, o] in place of h_res[o, i], as TileKernels, TransformerEngine and TileLang's example do.
"""

from torch import Tensor

from mhc.declaration import operator
from mhc.operator import Operator
from mhc.operators.eager import eager
from mhc.operators.mhc_post.triton.schedule import SPACE, unfit
from mhc.operators.on_triton import on_triton


def _post(name: str, *, transposed: bool = False) -> Operator:
    """Return the operator. transposed: h_res is mixed along its first axis."""

    @operator(
        name=name,
        x="[*B, n, C] storage",
        f="[*B, C] storage",
        h_post="[*B, n] float32",
        h_res="[*B, n, n] float32",
        n=(1, 16),
        tokens="*B",
    )
    def post(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Tensor:
        mixing = h_res.mT if transposed else h_res
        added = h_post.unsqueeze(-1) * f.to(h_post.dtype).unsqueeze(-2)
        return (mixing @ x.to(h_res.dtype) + added).to(x.dtype)

    return post


mhc_post = _post("mhc_post")
mhc_post_transposed = _post("mhc_post_transposed", transposed=True)

_LAUNCHES = "mhc.operators.mhc_post.triton.launches"
IMPLEMENTATIONS = (
    eager(mhc_post),
    eager(mhc_post_transposed),
    *on_triton(mhc_post, _LAUNCHES, SPACE, unfit),
    *on_triton(mhc_post_transposed, _LAUNCHES, SPACE, unfit, transposed=True),
)
