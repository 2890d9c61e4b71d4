"""Under torch.compile the results are right, and evenkeel's. SPDX-License-Identifier: MIT"""

import pytest
import torch

import evenkeel.torch as ek
from torch_cases import DEVICE, LAYER, gradients, same_bits, tensor

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
backends = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@backends
@pytest.mark.parametrize("module", [ek.LayerNorm, ek.RMSNorm])
def test_a_module_gives_its_own_bits_forward_and_backward(module, backend, kernels):
    model = torch.nn.Sequential(torch.nn.Linear(40, 40), module(40), torch.nn.ReLU()).to(DEVICE)
    compiled = torch.compile(model, backend=backend)
    x, dy = tensor((6, 40)), tensor((6, 40), seed=1)
    expected, found = model(x), compiled(x)
    assert same_bits(found, expected) and kernels.forward == 2
    results = []
    for call in (model, compiled):
        model.zero_grad()
        (dx,) = gradients(call, [x], dy)
        results.append([dx, *(p.grad.clone() for p in model.parameters())])
    assert all(map(same_bits, *results)) and kernels.backward == 2


@backends
def test_the_functions_too(backend, kernels):
    weight, bias = LAYER.affine((40,))

    def call(x):
        return ek.layer_norm(x.sin(), (40,), weight, bias) + ek.rms_norm(x, (40,), weight)

    x = tensor((6, 40))
    assert same_bits(torch.compile(call, backend=backend)(x), call(x))
    assert kernels.forward == 4


@backends
def test_other_shapes_and_dtypes_come_later(backend):
    compiled, module = (lambda m: (torch.compile(m, backend=backend), m))(ek.LayerNorm(40, device=DEVICE))
    for shape in ((6, 40), (7, 40), (2, 3, 40)):
        assert same_bits(compiled(tensor(shape)), module(tensor(shape)))


def test_a_graph_that_must_be_whole_says_what_breaks_it():
    compiled = torch.compile(ek.LayerNorm(40), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"evenkeel\.torch"):
        compiled(torch.ones(6, 40))
