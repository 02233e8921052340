"""Everything on a GPU gives what it gives on the CPU. Skipped where there is none."""

from functools import partial

import pytest
import torch

from grapheme_nn import Assignment, texts_to_batch
from grapheme_nn.config import ModelConfig
from grapheme_nn.loss import StructuralLoss, sinkhorn
from grapheme_nn.model import GraphTransformNet
from grapheme_nn.morph import LocalPool, Merge, Rewire, SoftPool, Split
from grapheme_nn.registry import OBJECTIVES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

BATCH = texts_to_batch(["abcdefgh", "ij", "", "klmno"])
MORPHS = [
    *(Merge(0.3, candidates=name, estimator=how) for name in ("edges", "all") for how in ("soft", "straight_through")),
    SoftPool(4, 3),
    LocalPool(4),
    Split(4, 2),
    Rewire(4),
    *(module(acyclic=False) for module in (Merge, partial(LocalPool, 4), partial(Split, 4, 2), partial(Rewire, 4))),
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("morph", MORPHS, ids=lambda morph: type(morph).__name__)
def test_morphs_agree_with_the_cpu(morph, training):
    torch.manual_seed(0)
    x = torch.randn(BATCH.num_nodes, 4, dtype=torch.float64)
    results = []
    for device in ("cpu", "cuda"):
        module = morph.double().train(training).to(device)
        own = x.detach().to(device, copy=True).requires_grad_()
        edge_weight = torch.ones(BATCH.num_edges, dtype=torch.float64, device=device, requires_grad=True)
        made = module(own, BATCH.edge_index.to(device), edge_weight, BATCH.batch.to(device))
        total = made.x.sin().sum() + made.edge_weight.square().sum() + sum(made.losses.values())
        module.zero_grad()
        total.backward()
        parts = [made.x, made.edge_index, made.edge_weight, made.batch, made.assignment.dense(), own.grad]
        parts += [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
        assert all(part.device.type == device for part in parts)
        results.append([part.detach().cpu() for part in parts])
    for on_cpu, on_gpu in zip(*results, strict=True):
        torch.testing.assert_close(on_gpu, on_cpu)


def test_an_assignment_moves_to_the_gpu_and_composes_there():
    here = Assignment.from_clusters(torch.tensor([0, 0, 1, 2]))
    there = here.to("cuda")
    both = there.compose(Assignment.from_clusters(torch.tensor([0, 1, 1], device="cuda")))
    assert both.dense().tolist() == [[0.5, 0], [0.5, 0], [0, 0.5], [0, 0.5]]
    with pytest.raises(ValueError, match="x is on cpu, but the assignment is on cuda"):
        there.reduce(torch.ones(4, 2))


@pytest.mark.parametrize("temperature", [0.1, 1e-3])
def test_sinkhorn_and_the_structural_loss_agree_with_the_cpu(temperature):
    torch.manual_seed(0)
    cost = torch.rand(3, 5, 6, dtype=torch.float64)
    target = texts_to_batch(["abdefgh", "ijk", "x", "kmno"])
    activations = [torch.randn(batch.num_nodes, 4, dtype=torch.float64) for batch in (BATCH, target)]
    results = []
    for device in ("cpu", "cuda"):
        own = cost.detach().to(device, copy=True).requires_grad_()
        plan = sinkhorn(own, temperature=temperature)
        (plan * own).sum().backward()
        pair = [batch.clone().to(device) for batch in (BATCH, target)]
        for batch, activation in zip(pair, activations, strict=True):
            batch.activation = activation.detach().to(device, copy=True).requires_grad_()
        distance = StructuralLoss(temperature=temperature)(*pair)
        distance.mean.backward()
        results.append([plan, own.grad, distance.total, distance.plan, pair[0].activation.grad])
    for on_cpu, on_gpu in zip(*results, strict=True):
        torch.testing.assert_close(on_gpu.cpu(), on_cpu)


@pytest.mark.parametrize("morphs", [("split",), ("merge", "lift", "split"), ("local_pool", "split")], ids=",".join)
@pytest.mark.parametrize("loss", list(OBJECTIVES))
def test_networks_and_objectives_agree_with_the_cpu(loss, morphs):
    torch.manual_seed(0)
    shape = {"width": 16, "hidden": 8, "heads": 2, "layers": 1, "dropout": 0.0, "buckets": 64}
    model = GraphTransformNet(ModelConfig(tuple("abcdef"), loss=loss, morphs=morphs, **shape)).double()
    target = texts_to_batch(["abc", "ffd", "", "be"])
    results = []
    for device in ("cpu", "cuda"):
        model = model.to(device)
        model.zero_grad()
        predicted = model(BATCH.clone().to(device))
        found = model.objective(predicted, target.clone().to(device))
        found.mean.backward()
        decoded = model.decode(predicted)
        parts = [predicted.label_log_prob, predicted.history.dense(), found.value, found.plan, decoded.x]
        parts += [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        assert all(part.device.type == device for part in parts)
        results.append([part.detach().cpu() for part in parts])
    for on_cpu, on_gpu in zip(*results, strict=True):
        torch.testing.assert_close(on_gpu, on_cpu)
