"""The assignment: features, edges, history and gradients all flow through S, and a dense S is the referee."""

import pickle
import subprocess
import sys
from copy import copy
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from grapheme_nn import Assignment


def from_dense(matrix):
    """The entries of S [n, k] that are not zero."""
    source, target = (matrix != 0).nonzero(as_tuple=True)
    return Assignment(source, target, matrix[source, target], *matrix.shape)


def random_assignment(draw, n, k):
    """Hard (with or without deleted sources) or soft."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    if k == 0 or draw(st.booleans()):
        cluster = torch.randint(0, max(k, 1), (n,), generator=generator)
        if k and draw(st.booleans()):
            return Assignment.from_clusters(cluster, k)
        kept = torch.rand(n, generator=generator) < (0.7 if k else 0)
        return from_dense(torch.nn.functional.one_hot(cluster, max(k, 1))[:, :k].double() * kept[:, None] * 0.5)
    soft = torch.rand(n, k, generator=generator, dtype=torch.float64)
    return from_dense(soft * (torch.rand(n, k, generator=generator) < 0.6))


@st.composite
def chains_of_assignments(draw, length):
    sizes = draw(st.lists(st.integers(0, 6), min_size=length + 1, max_size=length + 1))
    return [random_assignment(draw, n, k) for n, k in pairwise(sizes)]


@st.composite
def weighted_graphs(draw, n):
    """Directed, with duplicate edges and self-loops."""
    e = draw(st.integers(0, 12)) if n else 0
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    edge_index = torch.randint(0, max(n, 1), (2, e), generator=generator)
    return edge_index, torch.randn(e, generator=generator, dtype=torch.float64)


def dense_adjacency(edge_index, edge_weight, n):
    return torch.zeros(n, n, dtype=edge_weight.dtype).index_put(tuple(edge_index), edge_weight, accumulate=True)


def membership(assignment):
    """M as the docstring defines it, from S alone."""
    S = assignment.dense()
    return (S != 0).to(S) if ((S != 0).sum(dim=1) <= 1).all() else S


def assert_connects(assignment, M, edge_index, edge_weight):
    expected = M.T @ dense_adjacency(edge_index, edge_weight, assignment.num_sources) @ M
    expected.fill_diagonal_(0)
    edges, weights = assignment.connect(edge_index, edge_weight)
    assert (edges[0] != edges[1]).all()
    assert torch.unique(edges, dim=1).size(1) == edges.size(1)
    torch.testing.assert_close(dense_adjacency(edges, weights, assignment.num_targets), expected)


@given(st.data())
def test_connect_is_the_dense_product_without_self_loops(data):
    (assignment,) = data.draw(chains_of_assignments(1))
    edge_index, edge_weight = data.draw(weighted_graphs(assignment.num_sources))
    M = membership(assignment)
    torch.testing.assert_close(assignment.dense_membership(), M)
    assert_connects(assignment, M, edge_index, edge_weight)


@given(st.data())
def test_connect_of_a_composition_is_the_dense_product_of_memberships(data):
    first, second = data.draw(chains_of_assignments(2))
    edge_index, edge_weight = data.draw(weighted_graphs(first.num_sources))
    assert_connects(first.compose(second), membership(first) @ membership(second), edge_index, edge_weight)


@pytest.mark.parametrize("chunk", [2**15, 3])
@given(data=st.data())
def test_connect_by_type_is_the_dense_product_for_each_type(chunk, data):
    (assignment,) = data.draw(chains_of_assignments(1))
    edge_index, edge_weight = data.draw(weighted_graphs(assignment.num_sources))
    names = torch.tensor([0, 7, -(2**62)])
    size = edge_weight.numel()
    edge_type = names[torch.tensor(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))).long()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grapheme_nn.assignment._CHUNK", chunk)
        edges, weights, types = assignment.connect_typed(edge_index, edge_weight, edge_type)
    assert torch.unique(torch.cat([edges, types[None]]), dim=1).size(1) == edges.size(1) == types.numel()
    assert (edges[0] != edges[1]).all()
    for kind in names:
        own, kept = edge_type == kind, types == kind
        A = dense_adjacency(edge_index[:, own], edge_weight[own], assignment.num_sources)
        expected = (membership(assignment).T @ A @ membership(assignment)).fill_diagonal_(0)
        torch.testing.assert_close(dense_adjacency(edges[:, kept], weights[kept], assignment.num_targets), expected)


def test_parallel_edges_of_two_types_stay_two():
    pair, ends = Assignment.from_clusters(torch.tensor([0, 0, 1])), torch.tensor([[0, 1, 1], [2, 2, 2]])
    edges, weights, types = pair.connect_typed(ends, None, torch.tensor([4, 3, 4]))
    assert edges.tolist() == [[0, 0], [1, 1]]
    assert (weights.tolist(), types.tolist()) == ([1.0, 2.0], [3, 4])
    assert pair.connect_typed(ends, None, None)[2] is None


def test_merging_does_not_shrink_edge_weights():
    assignment = Assignment.from_clusters(torch.tensor([0, 0, 1, 1]))
    edges, weights = assignment.connect(torch.tensor([[0, 1, 2, 0], [1, 2, 3, 3]]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert edges.tolist() == [[0], [1]]
    assert weights.tolist() == [6.0]


def test_an_edge_without_weight_counts_as_one():
    edges, weights = Assignment.from_clusters(torch.tensor([0, 0, 1])).connect(torch.tensor([[0, 1], [2, 2]]))
    assert edges.tolist() == [[0], [1]]
    assert weights.tolist() == [2.0]
    assert weights.dtype == torch.float32


@given(chains_of_assignments(3))
def test_compose_is_the_matrix_product_and_associative(chain):
    a, b, c = chain
    torch.testing.assert_close(a.compose(b).dense(), a.dense() @ b.dense())
    left, right = a.compose(b).compose(c), a.compose(b.compose(c))
    torch.testing.assert_close(left.dense(), right.dense())
    torch.testing.assert_close(left.dense_membership(), right.dense_membership())


@given(chains_of_assignments(1))
def test_identity_is_neutral(chain):
    (a,) = chain
    for same in (
        a.compose(Assignment.identity(a.num_targets)),
        Assignment.identity(a.num_sources).compose(a),
    ):
        torch.testing.assert_close(same.dense(), a.dense())
        torch.testing.assert_close(same.dense_membership(), a.dense_membership())


@given(chains_of_assignments(1), st.sampled_from([(), (3,), (2, 3), (0,)]))
def test_reduce_and_lift_are_the_matrix_products(chain, shape):
    (a,) = chain
    x, y = torch.randn(a.num_sources, *shape).double(), torch.randn(a.num_targets, *shape).double()
    torch.testing.assert_close(a.reduce(x), torch.einsum("nk,n...->k...", a.dense(), x))
    torch.testing.assert_close(a.lift(y), torch.einsum("nk,k...->n...", a.dense(), y))


@given(chains_of_assignments(1))
def test_dense_and_sparse_are_inverse(chain):
    (a,) = chain
    assert torch.equal(from_dense(a.dense()).dense(), a.dense())


def test_a_merged_feature_is_the_mean():
    x = torch.tensor([[1.0], [2.0], [6.0], [4.0]])
    assert Assignment.from_clusters(torch.tensor([1, 1, 1, 0])).reduce(x).tolist() == [[4.0], [3.0]]


def test_harden_takes_the_strongest_target_and_the_first_of_equals():
    S = torch.tensor([[0.4, 0.3, 0.3], [0.0, 0.5, 0.5], [0.0, 0.0, 0.0], [0.4, 0.45, 0.15]])
    hard = from_dense(S).harden()
    assert hard.is_hard
    assert hard.clusters().tolist() == [0, 1, -1, 1]
    assert hard.dense().tolist() == [[1, 0, 0], [0, 0.5, 0], [0, 0, 0], [0, 0.5, 0]]


def test_a_split_is_hard_but_has_no_clusters_and_a_pool_is_neither():
    split = Assignment(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 2]), torch.ones(3), 2, 3)
    merge, soft = Assignment.from_clusters(torch.tensor([0, 0, 1])), from_dense(torch.full((2, 2), 0.5))
    assert [(each.is_hard, each.has_clusters) for each in (split, merge, soft)] == [
        (True, False),
        (True, True),
        (False, False),
    ]
    both = merge.compose(split)  # two nodes become one, which becomes two
    assert both.is_hard
    assert not both.has_clusters
    assert both.dense_membership().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert [repr(each).split(", ")[-1] for each in (split, merge, soft)] == ["hard)", "hard)", "soft)"]
    with pytest.raises(ValueError, match="call harden"):
        split.clusters()


@given(chains_of_assignments(1))
def test_the_main_source_weighs_most_and_is_the_first_of_equals(chain):
    (a,) = chain
    S = a.dense()
    expected = (
        [int(column.argmax()) if column.any() else -1 for column in S.T] if a.num_sources else [-1] * a.num_targets
    )
    assert a.main_sources().tolist() == expected


@given(chains_of_assignments(1))
def test_the_mean_is_weighed_by_S(chain):
    (a,) = chain
    x = torch.rand(a.num_sources, dtype=torch.float64)
    S = a.dense()
    total = S.sum(0)
    torch.testing.assert_close(a.mean(x), torch.where(total > 0, (S.T @ x) / total.clamp_min(1e-30), 0))


@given(st.lists(st.integers(0, 5)))
def test_clusters_inverts_from_clusters(cluster):
    assert Assignment.from_clusters(torch.tensor(cluster, dtype=torch.long)).clusters().tolist() == cluster


def test_contributors_answer_across_levels():
    pairs = Assignment.from_clusters(torch.tensor([0, 0, 1, 2]))
    both = pairs.compose(Assignment.from_clusters(torch.tensor([0, 0, 1])))
    nodes, weights = both.contributors(0)
    assert nodes.tolist() == [0, 1, 2]
    assert weights.tolist() == [0.25, 0.25, 0.5]
    assert [t.tolist() for t in both.contributors(1)] == [[3], [1.0]]


def test_a_three_way_merge_routes_its_gradient_by_S():
    assignment = Assignment.from_clusters(torch.tensor([0, 1, 1, 1, 2]))
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    merged = assignment.reduce(x)
    merged.retain_grad()
    (merged.sin().sum() + merged.prod(dim=1).sum()).backward()
    S = torch.zeros(5, 3, dtype=torch.float64)
    S[torch.arange(5), torch.tensor([0, 1, 1, 1, 2])] = torch.tensor([1, 1 / 3, 1 / 3, 1 / 3, 1], dtype=torch.float64)
    assert (x.grad - S @ merged.grad).abs().max() < 1e-12
    assert (x.grad - assignment.lift(merged.grad)).abs().max() < 1e-12


EDGES = torch.tensor([[0, 1, 2, 3, 0, 0, 2], [1, 2, 3, 4, 1, 4, 2]])


def soft_assignment(weight, membership=None):
    """Five sources, three targets, one source deleted."""
    source, target = torch.tensor([0, 0, 1, 2, 2, 4, 4]), torch.tensor([0, 1, 1, 0, 2, 2, 1])
    return Assignment(source, target, weight, 5, 3, membership)


def doubles(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_gradients_of_reduce_and_lift_are_exact():
    torch.manual_seed(0)
    for method, rows in (("reduce", 5), ("lift", 3)):

        def apply(x, weight, method=method):
            return getattr(soft_assignment(weight), method)(x)

        assert gradcheck(apply, (doubles(rows, 2), doubles(7)))
        assert gradgradcheck(apply, (doubles(rows, 2), doubles(7)))


def test_gradients_of_connect_are_exact():
    torch.manual_seed(0)
    assert gradcheck(lambda w, s: soft_assignment(s).connect(EDGES, w)[1], (doubles(7), doubles(7)))
    assert gradcheck(lambda w, s, m: soft_assignment(s, m).connect(EDGES, w)[1], (doubles(7), doubles(7), doubles(7)))
    hard = Assignment.from_clusters(torch.tensor([0, 0, 1, 2, 2]))
    assert gradcheck(lambda w: hard.connect(EDGES, w)[1], (doubles(7),))
    types = torch.tensor([1, 2, 1, 2, 3, 1, 1])
    assert gradcheck(lambda w: hard.connect_typed(EDGES, w, types)[1], (doubles(7),))
    assert gradcheck(lambda w, s: soft_assignment(s).connect_typed(EDGES, w, types)[1], (doubles(7), doubles(7)))


def test_gradients_of_compose_and_dense_are_exact():
    torch.manual_seed(0)
    second = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 1, 1])

    def composed(first_weight, second_weight):
        both = soft_assignment(first_weight).compose(Assignment(*second, second_weight, 3, 2))
        return both.weight, both.membership, both.dense()

    assert gradcheck(composed, (doubles(7), doubles(4)))
    matrix = doubles(3, 2)
    assert gradcheck(lambda S: from_dense(S).dense(), (matrix,))


MILLION = """
import resource, torch
from grapheme_nn import Assignment
torch.set_num_threads(1)
n = 1_000_000
x = torch.randn(n, 16, requires_grad=True)
edge_index = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
edge_weight = torch.ones(n - 1, requires_grad=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assignment = Assignment.from_clusters(torch.arange(n) // 2)
merged = assignment.reduce(x)
edges, weights = assignment.connect(edge_index, edge_weight)
(merged.sum() + weights.sum()).backward()
assert edges.size(1) == n // 2 - 1
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_what_is_made_when_asked_for_is_pickled_and_a_copy_does_not_make_it():
    lazy = Assignment.identity(3)
    assert "source" not in copy(lazy).__dict__
    assert "source" not in lazy.__dict__
    assert torch.equal(pickle.loads(pickle.dumps(lazy)).dense(), torch.eye(3).double())


def test_a_million_nodes_merge_in_memory_linear_in_them():
    # In a process of its own: what other tests left in the allocator would count here.
    grown = int(subprocess.run([sys.executable, "-c", MILLION], check=True, capture_output=True, text=True).stdout)
    assert grown < 600 * 1_000_000  # a dense S of half a million clusters would be 2e12 bytes; x alone is 64 MB


def indices(*values):
    return torch.tensor(values)


ONES = torch.ones(2)
PAIR = Assignment.from_clusters(torch.tensor([0, 0, 1]))
META = torch.device("meta")


@pytest.mark.parametrize(
    ("error", "sentence", "call"),
    [
        (ValueError, "target refers to number 3, but there are 3", lambda: Assignment(*[indices(0, 3)] * 2, ONES, 4, 3)),
        (ValueError, "source refers to number -1", lambda: Assignment(indices(0, -1), indices(0, 1), ONES, 2, 2)),
        (ValueError, "weight has a value that is not finite at entry 1", lambda: from_dense(torch.tensor([[1.0, float("nan")]]))),
        (ValueError, "target has shape \\[3\\], but weight has \\[2\\]", lambda: Assignment(indices(0, 1), indices(0, 1, 1), ONES, 2, 2)),
        (TypeError, "source must be integers, but is torch.float32", lambda: Assignment(ONES, indices(0, 1), ONES, 2, 2)),
        (TypeError, "weight must be floating point", lambda: Assignment(indices(0, 1), indices(0, 1), indices(1, 1), 2, 2)),
        (ValueError, "target is on meta, but the assignment is on cpu", lambda: Assignment(indices(0, 1), torch.zeros(2, dtype=torch.long, device=META), ONES, 2, 2)),
        (ValueError, "cluster must be one number per node", lambda: Assignment.from_clusters(torch.zeros(2, 2, dtype=torch.long))),
        (ValueError, "cluster refers to number -1", lambda: Assignment.from_clusters(indices(0, -1))),
        (ValueError, "cluster refers to number 5, but there are 2 clusters", lambda: Assignment.from_clusters(indices(0, 5), 2)),
        (TypeError, "cluster must be a tensor of integers .*, but is a list", lambda: Assignment.from_clusters([0, 1, 1])),
        (TypeError, "cluster must be integers, but is torch.float32", lambda: Assignment.from_clusters(ONES)),
        (ValueError, r"x has shape \[4, 2\], but the assignment has 3 sources", lambda: PAIR.reduce(torch.ones(4, 2))),
        (ValueError, r"x has shape \[3\], but the assignment has 2 targets", lambda: PAIR.lift(torch.ones(3))),
        (ValueError, "x is on meta, but the assignment is on cpu: move", lambda: PAIR.reduce(torch.ones(3, 2, device=META))),
        (TypeError, "x must be floating point", lambda: PAIR.reduce(indices(1, 2, 3))),
        (ValueError, "edge_index refers to node 3, but the graph has 3 nodes", lambda: PAIR.connect(indices(0, 3)[:, None])),
        (ValueError, r"edge_weight has shape \[2\], but there are 1 edges", lambda: PAIR.connect(indices(0, 1)[:, None], ONES)),
        (ValueError, r"edge_index must be integers of shape \[2, e\]", lambda: PAIR.connect(indices(0, 1))),
        (ValueError, r"edge_type must be one integer per edge, but is torch.int64 \[2\] for 1 edges", lambda: PAIR.connect_typed(indices(0, 1)[:, None], None, indices(0, 1))),
        (ValueError, "leads to 2 nodes, but the next one starts from 3", lambda: PAIR.compose(PAIR)),
        (ValueError, "there is no target 2: the assignment has 2", lambda: PAIR.contributors(2)),
        (ValueError, "call harden", lambda: from_dense(torch.ones(2, 2)).clusters()),
    ],
)  # fmt: skip
def test_bad_input_is_answered_by_a_sentence(error, sentence, call):
    with pytest.raises(error, match=sentence):
        call()
