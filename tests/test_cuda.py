"""Everything on a GPU gives what it gives on the CPU. Skipped where there is none."""

import pytest
import torch

from grapheme_nn import Assignment, texts_to_batch
from grapheme_nn.loss import PathLoss, StructuralLoss, TransportLoss, edge_log_softmax, sinkhorn
from grapheme_nn.morph import LocalPool, Merge, Rewire, SoftPool, Split

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

BATCH = texts_to_batch(["abcdefgh", "ij", "", "klmno"])
MORPHS = [
    *(Merge(0.3, candidates=name, estimator=how) for name in ("edges", "all") for how in ("soft", "straight_through")),
    SoftPool(4, 3),
    LocalPool(4),
    Split(4, 2),
    Rewire(4),
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


@pytest.mark.parametrize("loss", [PathLoss(reach=3), TransportLoss(), TransportLoss(order="soft")], ids=str)
def test_losses_that_spell_agree_with_the_cpu(loss):
    torch.manual_seed(0)
    labels, edges = torch.randn(3, 7, 5).double().log_softmax(dim=2), torch.randn(3, 8, 4).double()
    target = torch.tensor([[1, 2, 3], [4, 4, 1], [2, 0, 0]])
    target_mask = torch.tensor([[True] * 3, [True] * 3, [True, False, False]])
    results = []
    for device in ("cpu", "cuda"):
        own = labels.detach().to(device, copy=True).requires_grad_()
        extra = {"edge_log_prob": edge_log_softmax(edges.to(device))} if isinstance(loss, PathLoss) else {}
        spelled = loss(own, target.to(device), target_mask=target_mask.to(device), **extra)
        spelled.mean.backward()
        results.append([spelled.value, spelled.plan, own.grad])
    for on_cpu, on_gpu in zip(*results, strict=True):
        torch.testing.assert_close(on_gpu.cpu(), on_cpu)
