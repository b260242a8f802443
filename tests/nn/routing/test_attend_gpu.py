"""The GPU's kernels in Triton's interpreter, on a CPU: values and gradients of the sum."""

import os
import subprocess
import sys

import pytest

CASES = {  # (I, J, E, D, B), and what else `attend` is given
    "plain": ((3, 5, 16, 8, 19), {}),
    "few images": ((4, 2, 1, 3, 1), {}),
    "more than a program takes": ((2, 3, 4, 2, 140), {}),
    "leaky, detached": ((2, 3, 8, 4, 20), {"leaky": True, "detach": True}),
    "shifted, detached": ((2, 4, 8, 5, 7), {"shifted": True, "detach": True}),
    "stretched": ((3, 4, 8, 5, 14), {"stretched": True}),
}


def compare(sizes, how) -> list[float]:
    """Relative errors of the sum and of the gradients of u, W, q and b, against float64."""
    import torch
    from torch import Tensor

    from capsviz.nn.routing import _attend, _attend_gpu

    (I, J, E, D, B), how = sizes, dict(how)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=generator).requires_grad_()

    tensors = [draw(I, D, B), draw(I, J, E, D), draw(J, E, B)]
    tensors += [draw(I, J)] if how.pop("shifted", False) else []
    assert _attend._working_kernels(torch.device("cpu")) is _attend_gpu
    slope = draw(J, E, B).detach()

    def run(kernels, convert):
        _attend._kernels = lambda u, weight: kernels
        given = [convert(x.detach()).requires_grad_() for x in tensors]
        total = _attend.attend(*given, **how)
        return [total.detach(), *torch.autograd.grad(total, given, convert(slope))]

    return [
        float((a - b).norm() / b.norm().clamp_min(1e-30))
        for a, b in zip(run(_attend_gpu, Tensor.float), run(None, Tensor.double), strict=True)
    ]


def test_the_kernels_give_the_sum_and_its_gradients():
    pytest.importorskip("triton", reason="Triton is not here: PyTorch brings it with CUDA")
    process = subprocess.run(
        [sys.executable, __file__],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == list(CASES)
    for line in lines:
        errors = [float(word) for word in line.partition(": ")[2].split()]
        assert len(errors) >= 4 and max(errors) < 1e-5, line


def test_where_triton_does_not_run_blocks_are_taken_and_a_warning_says_so():
    pytest.importorskip("triton", reason="Triton is not here: PyTorch brings it with CUDA")
    import torch

    from capsviz.nn.routing import _attend

    _attend._working_kernels.cache_clear()
    with pytest.warns(UserWarning, match="slower than it could be: Triton does not run here"):
        assert _attend._working_kernels(torch.device("cpu")) is None  # here it is not interpreted
    assert _attend._working_kernels(torch.device("cpu")) is None  # without a second warning
    _attend._working_kernels.cache_clear()


if __name__ == "__main__":
    for name, case in CASES.items():
        print(f"{name}: {' '.join(map(str, compare(*case)))}")
