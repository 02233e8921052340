import random
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from grapheme_nn import text_to_graph, texts_to_batch
from grapheme_nn.loss import edit_distance


def random_graph(rng: random.Random, most: int) -> Data:
    nodes = rng.randint(0, most)
    edges = [(i, j) for i in range(nodes) for j in range(nodes) if i != j and rng.random() < 0.3]
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    return Data(x=torch.tensor([rng.randrange(3) for _ in range(nodes)], dtype=torch.long), edge_index=index)


def by_enumeration(x: Data, y: Data) -> int:
    """The least cost over all matchings; a node matched to one beyond the other graph's last is deleted or inserted."""
    n, m = x.x.size(0), y.x.size(0)
    x_edges = {tuple(edge) for edge in x.edge_index.T.tolist()}
    y_edges = {tuple(edge) for edge in y.edge_index.T.tolist()}
    costs = []
    for image in permutations(range(n + m), n):
        kept = [i for i in range(n) if image[i] < m]
        relabelled = sum(int(x.x[i] != y.x[image[i]]) for i in kept)
        moved = {(image[s], image[t]) for s, t in x_edges}
        costs.append(relabelled + n + m - 2 * len(kept) + len(moved ^ y_edges))
    return min(costs)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_small_graphs_have_the_distance_that_enumeration_finds(seed: int) -> None:
    rng = random.Random(seed)
    x, y = random_graph(rng, 3), random_graph(rng, 4)
    result = edit_distance(x, y)
    assert result.exact
    assert result.value == result.lower == by_enumeration(x, y)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("", "", 0),
        ("", "abc", 5),  # three nodes and two edges
        ("abc", "axc", 1),
        ("abc", "ab", 2),  # a node and its edge
        ("abcd", "abd", 3),  # relabel c, drop the last node and its edge: cheaper than mending the chain
        ("abcdefgh", "acdefgh", 3),  # drop a and its edge, relabel b
    ],
)
def test_texts_have_the_distance_one_counts_by_hand(one: str, other: str, expected: int) -> None:
    assert edit_distance(text_to_graph(one), text_to_graph(other)) == (expected, expected, True)


def test_large_graphs_get_bounds_within_the_time_allowed() -> None:
    one, other = text_to_graph("the quick brown fox jumps"), text_to_graph("the quack brawn fix lumps over")
    result = edit_distance(one, other, seconds=0.3)
    in_order = 4 + 5 + 5 + 3  # at most: some relabelled, five nodes and five edges more
    assert result.lower <= result.value <= in_order + 20
    assert result.value >= 10
    assert result.exact == (result.lower == result.value)
    assert edit_distance(one, one, seconds=0.3) == (0, 0, True)


def test_the_bounds_hold_the_exact_value_between_them() -> None:
    rng = random.Random(0)
    for _ in range(5):
        x, y = random_graph(rng, 5), random_graph(rng, 5)
        exact, bounded = edit_distance(x, y), edit_distance(x, y, exact_up_to=0, seconds=0.05)
        assert bounded.lower <= exact.value <= bounded.value


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6), integer=st.sampled_from([torch.uint8, torch.int32, torch.int64]), turned=st.booleans()
)
def test_any_layout_of_integers_has_the_same_distance(seed: int, integer: torch.dtype, turned: bool) -> None:
    rng = random.Random(seed)
    x, y = random_graph(rng, 4), random_graph(rng, 4)
    expected = edit_distance(x, y)
    for data in (x, y):
        index = data.edge_index.to(integer)
        data.edge_index = index.T.contiguous().T if turned else index.repeat_interleave(2, 1)[:, ::2]
        data.x = data.x.to(integer).repeat_interleave(3)[::3]
    assert edit_distance(x, y) == expected


def test_what_has_no_distance_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="the target graph is a batch"):
        edit_distance(text_to_graph("a"), texts_to_batch(["a"]))
    with pytest.raises(ValueError, match=r"has the edge \[0, 5\], but the graph has 1 nodes"):
        edit_distance(Data(x=torch.zeros(1).long(), edge_index=torch.tensor([[0], [5]])), text_to_graph("a"))
    with pytest.raises(ValueError, match="seconds must be positive, but is 0"):
        edit_distance(text_to_graph("a"), text_to_graph("b"), seconds=0)
    with pytest.raises(ValueError, match="the predicted graph has no x of integers"):
        edit_distance(Data(x=torch.zeros(1), edge_index=torch.zeros(2, 0).long()), text_to_graph("a"))
    with pytest.raises(ValueError, match=r"edge_index of the predicted graph must be integers of shape \[2, e\]"):
        edit_distance(Data(x=torch.zeros(1).long(), edge_index=torch.zeros(0)), text_to_graph("a"))
    with pytest.raises(ValueError, match="the predicted graph has no edge_index"):
        edit_distance(Data(x=torch.zeros(1).long()), text_to_graph("a"))
