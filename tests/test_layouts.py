"""Any tensor a user of PyG holds: other memory layouts, integer types and precisions give the same, or a sentence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grapheme_nn import (
    Assignment,
    GraphTransformNet,
    ModelConfig,
    is_acyclic,
    levels,
    texts_to_batch,
    topological_order,
)
from grapheme_nn.morph import Lift, LocalPool, Merge, Rewire, SoftPool, Split

CHANNELS = 4
OPERATORS = {
    **{
        f"merge_{name}": lambda name=name: Merge(0.5, estimator=name, temperature=0.5, ratio=0.4)
        for name in ("soft", "straight_through", "gumbel", "reinforce")
    },
    "merge_window": lambda: Merge(0.5, candidates="window"),
    "merge_all": lambda: Merge(0.5, candidates="all"),
    "soft_pool": lambda: SoftPool(CHANNELS, 2),
    "local_pool": lambda: LocalPool(CHANNELS),
    "split": lambda: Split(CHANNELS, 2),
    "rewire": lambda: Rewire(CHANNELS, 2),
    "lift": lambda: torch.nn.Sequential(LocalPool(CHANNELS), Lift(CHANNELS)),
}
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def transposed(tensor):
    return tensor.t().contiguous().t()


def every_other(tensor):
    """A slice with a stride along the last dimension, of memory with rubbish in between."""
    wide = torch.full((*tensor.shape[:-1], 2 * tensor.size(-1)), 99).to(tensor.dtype)
    wide[..., ::2] = tensor
    return wide[..., ::2]


def every_other_row(tensor):
    tall = torch.full((2 * tensor.size(0), *tensor.shape[1:]), 99).to(tensor.dtype)
    tall[::2] = tensor
    return tall[::2]


def with_offset(tensor):
    return torch.cat([torch.full_like(tensor, 7), tensor])[tensor.size(0) :]


MATRICES = st.sampled_from([transposed, every_other, every_other_row, with_offset, torch.Tensor.contiguous])
VECTORS = st.sampled_from([every_other, with_offset, torch.Tensor.contiguous])
INTEGERS = st.sampled_from([torch.int32, torch.int64])


@st.composite
def graphs(draw, one_graph=False):
    """A DAG, perhaps two in a batch, as plain tensors: x float32 [n, 4], edge_index int64 [2, e], weights, batch."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    n = draw(st.integers(1, 9))
    number = torch.randperm(n, generator=generator) if draw(st.booleans()) else torch.arange(n)
    kind = draw(st.sampled_from(["dag", "chain", "repeated", "none"]))
    if kind == "dag":
        ends = torch.randint(0, n, (2, 2 * n), generator=generator).sort(0).values
        edge_index = number[ends[:, ends[0] < ends[1]]]
    elif kind == "chain":
        edge_index = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    elif kind == "repeated" and n > 1:
        edge_index = torch.tensor([[0], [1]]).expand(2, 3).contiguous()
    else:
        edge_index = torch.zeros(2, 0, dtype=torch.long)
    batch = (torch.arange(n) >= draw(st.integers(1, n))).long()
    edge_index = edge_index[:, batch[edge_index[0]] == batch[edge_index[1]]]
    x = torch.randn(n, CHANNELS, generator=generator) + 0.5
    weight = torch.rand(edge_index.size(1), generator=generator) + 0.5
    return x, edge_index, weight, None if one_graph or draw(st.booleans()) else batch


@st.composite
def other_edges(draw, edge_index):
    """The same edges as somebody else would hold them."""
    layout = draw(st.sampled_from(["pairs", "expanded", "other"]))
    if layout == "pairs" and edge_index.size(1):
        edges = torch.tensor(edge_index.t().tolist()).t()
    elif layout == "expanded" and edge_index.size(1) == 3 and (edge_index == edge_index[:, :1]).all():
        edges = edge_index[:, :1].expand(2, 3)
    else:
        edges = draw(MATRICES)(edge_index)
    made = edges.to(draw(INTEGERS))  # keeps the strides
    assert torch.equal(made.long(), edge_index)
    return made


def run(name, training, x, edge_index, weight, batch, dtype=torch.float32):
    """All that an operator returns, and the gradients of x and of the weights."""
    torch.manual_seed(0)
    module = OPERATORS[name]().to(dtype).train(training)
    x = x.detach().requires_grad_()
    weight = None if weight is None else weight.detach().requires_grad_()
    torch.manual_seed(1)
    if isinstance(module, torch.nn.Sequential):
        morph = module[1](module[0](x, edge_index, weight, batch))
    else:
        morph = module(x, edge_index, weight, batch)
    total = morph.x.float().sin().sum() + morph.edge_weight.float().square().sum()
    total = total + sum(loss.float() for loss in morph.losses.values())
    total.backward()
    parts = [morph.x, morph.edge_index, morph.edge_weight, morph.owner, morph.assignment.dense(), x.grad]
    parts += [] if weight is None or weight.grad is None else [weight.grad]
    parts += [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return [part.detach() for part in parts]


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
@pytest.mark.parametrize("name", OPERATORS)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_an_operator_gives_the_same_for_any_layout_and_integer_type(name, training, data):
    x, edge_index, weight, batch = data.draw(graphs())
    plain = run(name, training, x, edge_index, weight, batch)
    same = run(
        name,
        training,
        data.draw(MATRICES)(x),
        data.draw(other_edges(edge_index)),
        data.draw(VECTORS)(weight),
        None if batch is None else data.draw(VECTORS)(batch).to(data.draw(INTEGERS)),
    )
    assert len(plain) == len(same)
    for one, other in zip(plain, same, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@given(data=st.data())
@settings(max_examples=4, deadline=None)
def test_an_operator_in_any_precision_gives_that_precision_back(name, training, dtype, data):
    x, edge_index, weight, batch = data.draw(graphs())
    exact = run(name, training, x.double(), edge_index, weight.double(), batch, torch.float64)
    found = run(name, training, x.to(dtype), edge_index, weight.to(dtype), batch, dtype)
    assert found[0].dtype == found[2].dtype == dtype
    assert all(part.isfinite().all() for part in found)
    sampled = training and name in ("merge_gumbel", "merge_reinforce")  # by other random numbers in other precisions
    if found[0].shape == exact[0].shape and dtype in (torch.float32, torch.float64) and not sampled:
        torch.testing.assert_close(found[0].double(), exact[0], rtol=1e-3, atol=1e-3)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_order_levels_and_acyclicity_are_the_same_for_any_layout_and_integer_type(data):
    x, edge_index, _, _ = data.draw(graphs(one_graph=True))
    other, n = data.draw(other_edges(edge_index)), x.size(0)
    assert is_acyclic(other, n) is is_acyclic(edge_index, n) is True
    assert torch.equal(levels(other, n), levels(edge_index, n))
    assert torch.equal(topological_order(other, n), topological_order(edge_index, n))
    turned = torch.cat([other, other.flip(0)], 1)
    assert is_acyclic(turned, n) is (not edge_index.size(1))


def assignments(draw, n, integer, vector):
    """A merge, or a soft pool, as plain tensors and as somebody else would hold them."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    k = draw(st.integers(1, 4))
    S = torch.rand(n, k, generator=generator) * (torch.rand(n, k, generator=generator) < 0.6)
    if draw(st.booleans()):
        S = torch.eye(k)[torch.randint(0, k, (n,), generator=generator)]
    source, target = S.nonzero(as_tuple=True)
    weight = S[source, target]
    plain = Assignment(source, target, weight, n, k)
    other = Assignment(vector(source).to(integer), vector(target).to(integer), vector(weight), n, k)
    return plain, other


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_an_assignment_gives_the_same_for_any_layout_and_integer_type(data):
    x, edge_index, weight, _ = data.draw(graphs(one_graph=True))
    integer, vector = data.draw(INTEGERS), data.draw(VECTORS)
    plain, other = assignments(data.draw, x.size(0), integer, vector)
    following, next_other = assignments(data.draw, plain.num_targets, integer, vector)
    edges = data.draw(other_edges(edge_index))
    layout = data.draw(MATRICES)
    y = torch.linspace(-1, 1, plain.num_targets * CHANNELS).view(-1, CHANNELS)
    pairs = [
        (plain.reduce(x), other.reduce(layout(x))),
        (plain.lift(y), other.lift(layout(y))),
        *zip(plain.connect(edge_index, weight), other.connect(edges, vector(weight)), strict=True),
        *zip(plain.connect(edge_index), other.connect(edges), strict=True),
        (plain.compose(following).dense(), other.compose(next_other).dense()),
        (plain.compose(following).dense_membership(), other.compose(next_other).dense_membership()),
        (plain.harden().dense(), other.harden().dense()),
        (plain.main_sources(), other.main_sources().long()),
        (plain.mean(x[:, 0]), other.mean(layout(x)[:, 0])),
        (plain.contributors(0)[0], other.contributors(0)[0].long()),
    ]
    if plain.has_clusters:
        pairs.append((plain.clusters(), other.clusters()))
        cluster = plain.clusters().clamp_min(0)
        again = Assignment.from_clusters(vector(cluster).to(integer), plain.num_targets)
        pairs.append((Assignment.from_clusters(cluster, plain.num_targets).reduce(x), again.reduce(layout(x))))
    for one, two in pairs:
        assert torch.equal(one, two)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_an_assignment_takes_any_precision(dtype):
    torch.manual_seed(0)
    S = torch.rand(5, 3) * (torch.rand(5, 3) < 0.7)
    x, y, edges = torch.randn(5, 4), torch.randn(3, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    for S_dtype in (dtype, torch.float32):
        entries = (S != 0).nonzero(as_tuple=True)
        assignment, exact = (Assignment(*entries, matrix[entries], 5, 3) for matrix in (S.to(S_dtype), S))
        own = x.to(dtype).requires_grad_()
        reduced = assignment.reduce(own)
        reduced.float().square().sum().backward()
        assert own.grad.isfinite().all()
        tolerance = {"rtol": 3e-2, "atol": 3e-2}
        assert reduced.dtype == assignment.lift(y.to(dtype)).dtype == dtype
        torch.testing.assert_close(reduced.float(), exact.reduce(x), **tolerance)
        torch.testing.assert_close(assignment.lift(y.to(dtype)).float(), exact.lift(y), **tolerance)
        weights = assignment.connect(edges, torch.ones(4, dtype=dtype))[1]
        assert weights.dtype == dtype
        torch.testing.assert_close(weights.float(), exact.connect(edges, torch.ones(4))[1], **tolerance)
        both = assignment.compose(Assignment.from_clusters(torch.tensor([0, 0, 1])))
        assert both.dense().isfinite().all()


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(
    ("sentence", "change"),
    [
        ("x must be floating point", lambda x, e, b: (x.long(), e, b)),
        ("x must be floating point", lambda x, e, b: (x[0], e, b)),
        ("edge_index must be integers", lambda x, e, b: (x, e.float(), b)),
        ("edge_index must be integers", lambda x, e, b: (x, e.bool(), b)),
        ("edge_index must be integers", lambda x, e, b: (x, e.t(), b)),
        ("edge_index refers to node 9, but the graph has 4 nodes", lambda x, e, b: (x, e + 6, b)),
        ("batch must be one integer per node", lambda x, e, b: (x, e, b.float())),
        ("batch must be one integer per node", lambda x, e, b: (x, e, b[1:])),
        ("batch must not be negative", lambda x, e, b: (x, e, b - 1)),
        ("graphs do not mix", lambda x, e, b: (x, e, torch.tensor([0, 0, 1, 1]))),
        ("edge_index is missing", lambda x, e, b: (x, None, b)),
    ],
)
def test_what_is_no_graph_is_answered_by_a_sentence(name, sentence, change):
    module = OPERATORS[name]()
    module = module[0] if isinstance(module, torch.nn.Sequential) else module
    x, edges, batch = change(torch.randn(4, CHANNELS), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.zeros(4).long())
    with pytest.raises(ValueError, match=sentence) as caught:
        module(x, edges, None, batch)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["soft_pool", "local_pool", "split", "rewire"])
def test_weights_of_another_precision_are_told_in_a_sentence(name):
    with pytest.raises(TypeError, match=r"x is torch.float64, but the weights of this \w+ are torch.float32: convert"):
        OPERATORS[name]()(torch.randn(3, CHANNELS).double(), torch.tensor([[0, 1], [1, 2]]))


@pytest.mark.parametrize("loss", ["monotone", "structural", "path", "ctc"])
@pytest.mark.parametrize("integer", [torch.int32, torch.int64])
def test_a_network_gives_the_same_for_any_layout_and_integer_type(loss, integer):
    torch.manual_seed(0)
    shape = {"width": 16, "hidden": 8, "heads": 2, "layers": 1, "buckets": 64, "dropout": 0.0}
    config = ModelConfig(tuple("abc"), features=("V",), loss=loss, morphs=("merge", "lift", "split"), **shape)
    model = GraphTransformNet(config)
    batch = texts_to_batch(["abca", "", "cb"], features=[("V",), (), ("V", "W")])
    target = texts_to_batch(["ab", "", "cba"])
    other, wanted = batch.clone(), target.clone()
    for held in (other, wanted):
        held.x = every_other(held.x).to(integer)
        held.edge_index = transposed(held.edge_index).to(integer)
        held.batch = every_other(held.batch).to(integer)
        held.ptr = every_other(held.ptr).to(integer)
    other.feature_batch = other.feature_batch.to(integer)
    one, two = model(batch), model(other)
    assert torch.equal(one.label_log_prob, two.label_log_prob)
    values = [model.objective(one, target).value, model.objective(two, wanted).value]
    assert torch.equal(*values)
    assert torch.equal(model.decode(one).x, model.decode(two).x)
    values[1][values[1] < torch.inf].sum().backward()
