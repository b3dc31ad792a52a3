"""Linear maps, by the library that is quick on this CPU.

In single precision torch multiplies matrices with Intel's MKL, which uses AVX-512 on Intel's CPUs alone. oneDNN, which torch
has too, uses it on all that have it: on AMD's it is more than twice as fast. It is taken where gradients are recorded, so
that what a model answers does not depend on it. ATEN_CPU_CAPABILITY=avx2 in the environment turns it off.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from latentloop.provenance import processor

ONEDNN = (
    torch.backends.mkldnn.is_available()
    and torch.backends.cpu.get_cpu_capability() == "AVX512"
    and "Intel" not in processor()
)
"""Whether this is a CPU on which oneDNN is the quicker one."""


class Linear(nn.Linear):
    """A linear layer whose product is ``linear``."""

    def forward(self, input: Float[Tensor, "*batch into"]) -> Float[Tensor, "*batch out"]:
        """Return the outputs."""
        return linear(input, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*batch into"], weight: Float[Tensor, "out into"], bias: Float[Tensor, " out"]
) -> Float[Tensor, "*batch out"]:
    """Return ``x @ weight.mT + bias``."""
    if _quick(x) and torch.is_grad_enabled():
        return _Linear.apply(x, weight, bias)  # pyrefly: ignore
    return F.linear(x, weight, bias)


def times_transposed(
    left: Float[Tensor, "matrix row inner"], right: Float[Tensor, "matrix column inner"]
) -> Float[Tensor, "matrix row column"]:
    """Return ``left @ right.mT`` for each of some matrices, without gradients."""
    if _quick(left):
        return torch.stack([_onednn(*pair, None) for pair in zip(left, right, strict=True)])
    return left @ right.mT


def _quick(x: Tensor) -> bool:
    return (
        ONEDNN
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.numel() > 0  # oneDNN knows no empty products
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    """A linear map with products by oneDNN, forward and backward."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        context.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # pyrefly: ignore
        x, weight = context.saved_tensors
        to_x, to_weight, to_bias = context.needs_input_grad
        rows = gradient.flatten(0, -2)
        return (
            _onednn(gradient, weight.mT, None) if to_x else None,
            _onednn(rows.mT, x.flatten(0, -2).mT, None) if to_weight else None,
            rows.sum(0) if to_bias else None,
        )
