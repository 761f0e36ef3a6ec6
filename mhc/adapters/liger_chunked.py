"""Liger-Kernel's losses from hidden states, one chunk of tokens after another: `liger_kernel.chunked_loss`.

They are PyTorch code that `torch.compile` makes kernels of; here it is not compiled (`compiled=False`). linear_jsd is taken
in float32 only: in 16 bits it rounds its logarithms.
"""

from typing import Any

import torch
from torch import Tensor

from mhc.adapters.library import IGNORED, TARGET, log_sigmoid
from mhc.adapters.liger import LIGER
from mhc.adapters.liger_losses import divergences, far
from mhc.declaration import operator
from mhc.implementation import Implementation
from mhc.operator import accumulation_dtype


def _loss(module: str, name: str, **options: Any) -> Any:
    return getattr(LIGER.load(f"chunked_loss.{module}"), f"LigerFusedLinear{name}Loss")(compiled=False, **options)


def _log_probabilities(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Return that of each target, 0 where it is ignored, from logits in x's dtype."""
    rows = (x @ weight.T).to(accumulation_dtype(x.dtype)).log_softmax(-1)
    return rows.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1) * (target != IGNORED)


_PAIRS: dict[str, Any] = {
    "x": "[N, S, D] storage",
    "weight": "[V, D] storage",
    "target": "[N, S] int64 in 0..V or -100",
    "N": "2*P",
    "P": (1, 64),
    "V": (1, 65536),
    "beta": (0.1, 1.0),
}
"""P answers that were chosen, and then P that were rejected."""


@operator(**_PAIRS, frozen_x="[N, S, D] storage constant", frozen="[V, D] storage constant")
def dpo(x: Tensor, weight: Tensor, target: Tensor, frozen_x: Tensor, frozen: Tensor, *, beta: float) -> Tensor:
    """Return the loss of DPO, mean over the pairs: an answer has the sum of its log-probabilities (arXiv 2305.18290)."""
    ratios = (_log_probabilities(x, weight, target) - _log_probabilities(frozen_x, frozen, target)).sum(-1)
    chosen, rejected = ratios.chunk(2)
    return -log_sigmoid(beta * (chosen - rejected)).mean()


def _dpo(x: Tensor, weight: Tensor, target: Tensor, frozen_x: Tensor, frozen: Tensor, *, beta: float) -> Any:
    loss = _loss("dpo_loss", "DPO", ignore_index=IGNORED, beta=beta, compute_nll_loss=False, use_ref_model=True)
    return loss(weight, x, target, ref_input=frozen_x, ref_weight=frozen)[0]


@operator(**_PAIRS)
def cpo(x: Tensor, weight: Tensor, target: Tensor, *, beta: float) -> Tensor:
    """Return the loss of CPO: as DPO's without a frozen model, and the mean loss of the chosen tokens (arXiv 2401.08417)."""
    each = _log_probabilities(x, weight, target)
    chosen, rejected = each.sum(-1).chunk(2)
    first = each.shape[0] // 2
    return -log_sigmoid(beta * (chosen - rejected)).mean() - each[:first].sum() / (target[:first] != IGNORED).sum()


def _cpo(x: Tensor, weight: Tensor, target: Tensor, *, beta: float) -> Any:
    return _loss("cpo_loss", "CPO", ignore_index=IGNORED, beta=beta, alpha=1.0)(weight, x, target)[0]


@operator(
    x="[T, D] storage",
    weight="[V, D] storage",
    frozen_x="[T, D] storage constant",
    frozen="[V, D] storage constant",
    labels=TARGET,
    V=(1, 65536),
    beta=(0.5, 0.0, 1.0, 0.1),
    temperature=(1.0, 2.0),
    regimes=far("x", "frozen_x"),
)
def linear_jsd(
    x: Tensor, weight: Tensor, frozen_x: Tensor, frozen: Tensor, labels: Tensor, *, beta: float, temperature: float
) -> Tensor:
    """Return half of the cross-entropy and half of the divergence from a teacher, means over what is not ignored."""
    student, teacher = x @ weight.T, frozen_x @ frozen.T
    hard = -_log_probabilities(x, weight, labels)
    soft = divergences((student / temperature).log_softmax(-1), (teacher / temperature).log_softmax(-1), beta).sum(-1)
    there = labels != IGNORED
    return 0.5 * torch.where(there, hard + soft, 0.0).sum() / there.sum().clamp(min=1)


def _linear_jsd(
    x: Tensor, weight: Tensor, frozen_x: Tensor, frozen: Tensor, labels: Tensor, *, beta: float, temperature: float
) -> Any:
    loss = _loss("jsd_loss", "JSD", beta=beta, ignore_index=IGNORED, temperature=temperature)
    return loss(x, weight, frozen_x, frozen, labels, None, None)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *LIGER.kernel("dpo", dpo, function=_dpo),
    *LIGER.kernel("cpo", cpo, function=_cpo),
    *LIGER.kernel("linear_jsd", linear_jsd, function=_linear_jsd, dtypes=("float32",)),
)
