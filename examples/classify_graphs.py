"""Graph classification with PyG: message passing, then Merge and SoftPool, then a linear head.

The graphs are small random DAGs with four kinds of nodes. The question is whether one holds the motif 0 -> 1 -> 2: an
edge from a node of kind 0 to one of kind 1, and from that one to a node of kind 2.

    python examples/classify_graphs.py
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv

from grapheme_nn import Merge, Morph, SoftPool

KINDS, CHANNELS, CLUSTERS = 4, 32, 3


def random_dag(generator: torch.Generator) -> Data:
    """A DAG of 6 to 10 nodes, whose edges lead from smaller to larger numbers; `y` says whether it holds the motif."""
    n = int(torch.randint(6, 11, (), generator=generator))
    kind = torch.randint(KINDS, (n,), generator=generator)
    edge_index = (torch.rand(n, n, generator=generator) < 0.3).triu(1).nonzero().T
    source, target = edge_index
    middle = torch.isin(torch.arange(n), target[(kind[source] == 0) & (kind[target] == 1)])
    holds = (middle[source] & (kind[target] == 2)).any()
    return Data(x=one_hot(kind, KINDS).float(), edge_index=edge_index, y=holds.long()[None])


def balanced(count: int, seed: int) -> list[Data]:
    """As many graphs with the motif as without."""
    generator, found = torch.Generator().manual_seed(seed), ([], [])
    while min(map(len, found)) < count // 2:
        graph = random_dag(generator)
        found[int(graph.y)].append(graph)
    return [*found[0][: count // 2], *found[1][: count // 2]]


class Classifier(nn.Module):
    """Two rounds of message passing, a chain of two morphs, and a head over the clusters of each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GraphConv(KINDS, CHANNELS), GraphConv(CHANNELS, CHANNELS)
        self.morphs = nn.Sequential(Merge(threshold=0.9), SoftPool(CHANNELS, CLUSTERS))
        self.head = nn.Linear(CLUSTERS * CHANNELS, 2)

    def forward(self, graphs: Data) -> tuple[Tensor, Morph]:
        x = self.first(graphs.x, graphs.edge_index).relu()
        x = self.second(x, graphs.edge_index).relu()
        morph = self.morphs(Data(x=x, edge_index=graphs.edge_index, batch=graphs.batch))
        return self.head(morph.x.view(graphs.num_graphs, -1)), morph


def main(graphs: int = 1000, epochs: int = 20) -> float:
    """The share of new graphs that are told right."""
    torch.manual_seed(0)
    learned, new = balanced(graphs, seed=1), balanced(500, seed=2)
    model = Classifier()
    merge = model.morphs[0]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    print(f"{len(learned):,} DAGs to learn from, half of them with the motif; threshold {merge.threshold.item():.3f}")
    for epoch in range(1, epochs + 1):
        model.train()
        total = 0.0
        for batch in DataLoader(learned, batch_size=64, shuffle=True):
            logits, morph = model(batch)
            loss = cross_entropy(logits, batch.y) + 0.1 * sum(morph.losses.values())  # SoftPool's link and entropy
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.num_graphs / len(learned)
        if epoch % 5 == 0:
            print(f"epoch {epoch}: loss {total:.3f}, threshold {merge.threshold.item():.3f}")
    model.eval()
    with torch.no_grad():
        batch = next(iter(DataLoader(new, batch_size=len(new))))
        logits, morph = model(batch)
    accuracy = (logits.argmax(1) == batch.y).float().mean().item()
    merged = morph.before  # the graph between Merge and SoftPool
    print(f"{batch.num_nodes:,} nodes became {merged.num_nodes:,} by merging, then {morph.num_nodes:,} clusters")
    print(f"{accuracy:.1%} of {len(new)} new DAGs are told right, half of which hold the motif")
    cluster = morph.history.harden().clusters()[batch.batch == len(new) - 1]  # of the nodes that the chain began with
    kind = new[-1].x.argmax(1)
    print(f"of the last DAG, nodes of the kinds {kind.tolist()} are in the clusters {(cluster % CLUSTERS).tolist()}")
    return accuracy


if __name__ == "__main__":
    main()
