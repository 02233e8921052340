"""Batches of texts, levels and merges against PyG and networkx, in one run: one thread, CPU time, best of five.

MALLOC_MMAP_THRESHOLD_=100000000000 MALLOC_TRIM_THRESHOLD_=100000000000 python benchmarks/graph.py

The two settings keep freed memory in the process (glibc). Without them the pages of large tensors are fetched from the
system again in every run, by ours and the peer's, and a merge of twice the nodes takes three times as long, not twice.
"""

import argparse
import time
from collections.abc import Callable

import networkx as nx
import torch
from rich.console import Console
from rich.table import Table
from torch_geometric.data import Batch
from torch_geometric.utils import coalesce, scatter

from grapheme_nn import Assignment, levels, text_to_graph, texts_to_batch


def milliseconds(*runs: Callable[[], object]) -> list[float]:
    """The best of five of each, after one to warm up; in turns, so that another job disturbs all alike."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(6):
        for run, own in zip(runs, times, strict=True):
            start = time.process_time()
            run()
            own.append(time.process_time() - start)
    return [min(own[1:]) * 1e3 for own in times]


def backward_chain(n: int) -> torch.Tensor:
    """A chain numbered from its end, so that its levels must be walked."""
    node = torch.arange(n).flip(0)
    return torch.stack([node[:-1], node[1:]])


def merge(n: int) -> tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]:
    """A chain's nodes merged two and two, forward and backward: ours, and PyG's scatter and coalesce."""
    x = torch.randn(n, 16, requires_grad=True)
    edge_index = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    edge_weight = torch.ones(n - 1, requires_grad=True)
    cluster = torch.arange(n) // 2

    def gradient(merged: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch.cat(
            [
                part.flatten()
                for part in torch.autograd.grad(merged.square().sum() + weights.square().sum(), (x, edge_weight))
            ]
        )

    def ours() -> torch.Tensor:
        assignment = Assignment.from_clusters(cluster)
        return gradient(assignment.reduce(x), assignment.connect(edge_index, edge_weight)[1])

    def peer() -> torch.Tensor:
        within = cluster[edge_index]
        between = within[0] != within[1]  # as ours, which drops an edge inside a node
        weights = coalesce(within[:, between], edge_weight[between], n // 2)[1]
        return gradient(scatter(x, cluster, reduce="mean"), weights)

    return ours, peer


def main() -> None:
    torch.set_num_threads(1)
    memory, copy = torch.ones(2**26), torch.ones(2**26)
    rate = 2 * memory.nbytes / milliseconds(lambda: copy.copy_(memory))[0]  # bytes read and written per millisecond
    table = Table("operation", "size", "limit ms", "ours ms", "peer", "peer ms", "peer / ours")

    def add(name: str, n: int, moved: int, ours: Callable[[], object], peer: str, theirs: Callable[[], object]) -> None:
        own, other = milliseconds(ours, theirs)
        floor, ratio = f"{moved / rate:.2f}", f"{other / own:.1f}x"
        table.add_row(name, f"{n:,}", floor, f"{own:.1f}", peer, f"{other:.1f}", ratio)

    words = [f"word{i}" for i in range(10_000)]
    moved = sum(
        tensor.nbytes for tensor in texts_to_batch(words).to_dict().values() if isinstance(tensor, torch.Tensor)
    )
    each = lambda: Batch.from_data_list([text_to_graph(word) for word in words])  # noqa: E731
    add("texts_to_batch, words", len(words), moved, lambda: texts_to_batch(words), "PyG, a Data each", each)
    for n in (50_000, 200_000):
        edge_index = backward_chain(n)
        graph = nx.DiGraph(edge_index.T.tolist())  # made outside the clock
        walk = lambda graph=graph: list(nx.topological_generations(graph))  # noqa: E731
        run = lambda edge_index=edge_index, n=n: levels(edge_index, n)  # noqa: E731
        add("levels of a chain", n, edge_index.nbytes + 8 * n, run, "networkx", walk)
    for n in (1_000_000, 2_000_000):
        ours, theirs = merge(n)
        assert torch.allclose(ours(), theirs())
        moved = n * 16 * 4 * 3 + n * (16 + 4 + 4)  # x, its half and its gradient; edges, their weights and gradients
        add("merge in pairs", n, moved, ours, "PyG, scatter and coalesce", theirs)
    Console(width=120).print(table)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help is answered, anything else refused
    main()
