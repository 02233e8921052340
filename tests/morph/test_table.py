"""What the docstring of `Morph` states of x', A' and S holds, operator by operator, against dense matrices by hand."""

from itertools import product
from math import exp, log1p, prod, sqrt

import pytest
import torch

from grapheme_nn.morph import Lift, LocalPool, Merge, Rewire, SoftPool, Split

# Two graphs: a DAG of six nodes with numbers that do not tell its order and an edge that occurs twice, and a chain.
EDGES = torch.tensor([[5, 5, 0, 1, 1, 2, 5, 6, 7], [0, 1, 2, 2, 3, 4, 0, 7, 8]])
BATCH = torch.tensor([0] * 6 + [1] * 3)
ORDER = [5, 0, 1, 2, 3, 4, 6, 7, 8]  # by hand: levels of the first graph are 5 | 0 1 | 2 3 | 4
N = 9


def inputs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(N, 3, generator=generator, dtype=torch.float64) + 0.6
    return x, torch.rand(EDGES.size(1), generator=generator, dtype=torch.float64) + 0.5


def adjacency(edge_index, edge_weight, n):
    A = torch.zeros(n, n, dtype=torch.float64)
    for (i, j), weight in zip(edge_index.T.tolist(), edge_weight.tolist(), strict=True):
        A[i, j] += weight
    return A


def off_diagonal(A):
    return A - torch.diag(A.diagonal())


def assert_is(morph, x, A, S, M=None):
    torch.testing.assert_close(morph.x.detach(), x)
    torch.testing.assert_close(adjacency(morph.edge_index, morph.edge_weight, morph.num_nodes), A)
    torch.testing.assert_close(morph.assignment.dense().detach().double(), S)
    if M is not None:
        torch.testing.assert_close(morph.assignment.dense_membership().detach().double(), M)


@pytest.mark.parametrize("estimator", ["eval", "straight_through", "gumbel", "reinforce"])
@pytest.mark.parametrize("candidates", ["edges", "window", "all"])
def test_merge(estimator, candidates):
    x, weight = inputs(1)
    merge = Merge(0.8, candidates=candidates, estimator="soft" if estimator == "eval" else estimator).double()
    torch.manual_seed(0)
    morph = merge.train(estimator != "eval")(x, EDGES, weight, BATCH)
    cluster, k = morph.assignment.clusters().tolist(), morph.num_nodes
    assert 1 < k < N
    M, S, mean = torch.zeros(N, k).double(), torch.zeros(N, k).double(), torch.zeros(k, 3).double()
    for node, number in enumerate(cluster):
        members = [other for other in range(N) if cluster[other] == number]
        M[node, number], S[node, number] = 1, 1 / len(members)
        mean[number] += x[node] / len(members)
    assert_is(morph, mean, off_diagonal(M.T @ adjacency(EDGES, weight, N) @ M), S, M)
    torch.testing.assert_close(S.T @ x, mean)
    assert morph.batch.tolist() == [int(BATCH[cluster.index(number)]) for number in range(k)]


def test_soft_merge_over_all_outcomes():
    """On a chain the forest hangs from the first node: each pair merges by itself, a node's head is where merging ends."""
    n = 5
    x, weight = inputs(2)[0][:n], torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    merge = Merge(0.5, estimator="soft", temperature=1.5, reach=n).double()
    morph = merge(x, torch.stack([torch.arange(n - 1), torch.arange(1, n)]), weight)
    gate = []  # of the pair (i - 1, i)
    for i in range(1, n):
        cosine = float(x[i - 1] @ x[i] / (x[i - 1].norm() * x[i].norm()))
        gate.append(1 / (1 + exp(-(cosine - 0.5) / 1.5)))
    M, A, heads = (torch.zeros(n, n, dtype=torch.float64) for _ in range(3))
    for outcome in product([False, True], repeat=n - 1):
        probability = prod(g if merged else 1 - g for g, merged in zip(gate, outcome, strict=True))
        head = [0]
        for i, merged in enumerate(outcome, 1):
            head.append(head[-1] if merged else i)
        for node in range(n):
            M[node, head[node]] += probability
        for i in range(n - 1):
            if head[i] != head[i + 1]:
                A[head[i], head[i + 1]] += probability * weight[i]
        for node in set(head):
            heads[node, node] += probability
    is_head = torch.tensor([1.0, *(1 - g for g in gate)], dtype=torch.float64)
    torch.testing.assert_close(heads.diagonal(), is_head)
    S = M * (is_head / M.sum(0))
    assert_is(morph, S.T @ x, A, S, M)
    torch.testing.assert_close(morph.existence.detach(), is_head)


def test_soft_pool():
    torch.manual_seed(0)
    pool = SoftPool(3, 2).double()
    x, weight = inputs(3)
    morph = pool(x, EDGES, weight, BATCH)
    score = x @ pool.score.weight.detach().T + pool.score.bias.detach()
    S = torch.zeros(N, 4, dtype=torch.float64)
    for node in range(N):
        for cluster in range(2):
            others = sum(exp(score[node, other]) for other in range(2))
            S[node, 2 * int(BATCH[node]) + cluster] = exp(score[node, cluster]) / others
    A = adjacency(EDGES, weight, N)
    assert_is(morph, S.T @ x, off_diagonal(S.T @ A @ S), S, S)
    assert morph.batch.tolist() == [0, 0, 1, 1]
    link = [(A[own][:, own] - S[own] @ S[own].T).square().sum() / own.sum() ** 2 for own in (BATCH == 0, BATCH == 1)]
    entropy = [-(S[own][S[own] > 0].log() * S[own][S[own] > 0]).sum() / own.sum() for own in (BATCH == 0, BATCH == 1)]
    torch.testing.assert_close(morph.losses["link"].detach(), sum(link) / 2)
    torch.testing.assert_close(morph.losses["entropy"].detach(), sum(entropy) / 2)


@pytest.mark.parametrize("reach", [1, 2, 3])
def test_local_pool(reach):
    torch.manual_seed(1)
    pool = LocalPool(3, 0.5, reach).double()
    with torch.no_grad():
        pool.log_width.fill_(0.3)
    x, weight = inputs(4)
    morph = pool(x, EDGES, weight, BATCH)
    step = [log1p(exp(float(pool.step(row).detach()))) for row in x]
    M = torch.zeros(N, 5, dtype=torch.float64)  # 3 clusters of 6 nodes, and 2 of 3
    for nodes, first, k in ((ORDER[:6], 0, 3), (ORDER[6:], 3, 2)):
        length, gone = sum(step[node] for node in nodes), 0.0
        for node in nodes:
            place = min(max(k * (gone + step[node] / 2) / length - 0.5, 0), k - 1)
            gone += step[node]
            begin = round(place - (reach - 1) / 2)
            near = [c for c in range(begin, begin + reach) if 0 <= c < k]
            score = {c: exp(-((place - c) ** 2) / exp(0.3)) for c in near}
            for c, value in score.items():
                M[node, first + c] = value / sum(score.values())
    S = M / M.sum(0)
    A = adjacency(EDGES, weight, N)
    assert_is(morph, S.T @ x, off_diagonal(M.T @ A @ M), S, M)
    assert morph.batch.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_split(parts):
    torch.manual_seed(0)
    split = Split(3, parts).double()
    x, weight = inputs(5)
    morph = split(x, EDGES, weight, BATCH)
    W, b = split.children_of.weight.detach(), split.children_of.bias.detach()
    children, S = torch.zeros(N * parts, 3).double(), torch.zeros(N, N * parts).double()
    A = torch.zeros(N * parts, N * parts, dtype=torch.float64)
    for node in range(N):
        for r in range(parts):
            children[node * parts + r] = W[3 * r : 3 * r + 3] @ x[node] + b[3 * r : 3 * r + 3]
            S[node, node * parts + r] = 1
            if r:
                A[node * parts + r - 1, node * parts + r] = 1
    for (i, j), value in zip(EDGES.T.tolist(), weight.tolist(), strict=True):
        A[i * parts + parts - 1, j * parts] += value
    assert_is(morph, children, A, S, S)
    assert morph.batch.tolist() == [int(BATCH[node]) for node in range(N) for _ in range(parts)]


@pytest.mark.parametrize("before", ["merge", "local_pool"])
def test_lift(before):
    torch.manual_seed(0)
    x, weight = inputs(1)
    change = Merge(0.8).double().eval() if before == "merge" else LocalPool(3).double()
    lift, coarse = Lift(3).double(), change(x, EDGES, weight, BATCH)
    assert coarse.num_nodes < N
    morph = lift(coarse)
    T = coarse.assignment.dense().detach().double()
    S = (T.T != 0).double()
    W, b = lift.linear.weight.detach(), lift.linear.bias.detach()
    assert_is(morph, x + T @ coarse.x.detach() @ W.T + b, adjacency(EDGES, weight, N), S)
    assert morph.batch.tolist() == BATCH.tolist()


@pytest.mark.parametrize("training", [True, False])
def test_rewire(training):
    torch.manual_seed(3)
    rewire = Rewire(3, 2).double().train(training)
    with torch.no_grad():
        rewire.bias.copy_(torch.tensor([-0.2, 0.1]))
    x, weight = inputs(6)
    morph = rewire(x, EDGES, weight, BATCH)
    query, key = x @ rewire.query.weight.detach().T, x @ rewire.key.weight.detach().T

    def gate(i, j, bias):
        return 1 / (1 + exp(-(float(query[i] @ key[j]) / sqrt(3) + bias)))

    A, listed = torch.zeros(N, N, dtype=torch.float64), set()
    existing = set(map(tuple, EDGES.T.tolist()))
    for (i, j), value in zip(EDGES.T.tolist(), weight.tolist(), strict=True):
        there = gate(i, j, -0.2) > 0.5
        A[i, j] += value * there
        listed |= {(i, j)} if training or there else set()
    for nodes in (ORDER[:6], ORDER[6:]):
        for place, i in enumerate(nodes):
            for j in nodes[place + 1 : place + 3]:
                if (i, j) not in existing:
                    A[i, j] = float(gate(i, j, 0.1) > 0.5)
                    listed |= {(i, j)} if training or A[i, j] else set()
    kept = [bool(A[i, j]) for i, j in existing]
    assert any(kept)
    assert not all(kept)
    assert any(bool(A[i, j]) for i, j in listed - existing)
    assert_is(morph, x, A, torch.eye(N, dtype=torch.float64))
    assert set(map(tuple, morph.edge_index.T.tolist())) == listed
    if training:  # the gradient is that of the soft gates
        sent = torch.randn_like(morph.edge_weight)
        (found,) = torch.autograd.grad(morph.edge_weight, rewire.bias, sent)
        expected = [0.0, 0.0]
        own = [*weight.tolist(), *[1.0] * (morph.edge_index.size(1) - weight.numel())]
        for at, (i, j) in enumerate(morph.edge_index.T.tolist()):
            new = at >= weight.numel()
            g = gate(i, j, 0.1 if new else -0.2)
            expected[new] += float(sent[at]) * own[at] * g * (1 - g)
        assert found.tolist() == pytest.approx(expected)
