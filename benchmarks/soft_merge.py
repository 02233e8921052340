"""Accuracy in training and in eval() by the estimator of Merge, on a small task: the last table of docs/estimators.md.

Chains of 8 to 14 nodes of four kinds, with noise, half of the nodes like the one before: does a chain have more runs of
like nodes than half its nodes? A network merges, and sums over the nodes that are left.

    python benchmarks/soft_merge.py
"""

import argparse

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_add_pool

from grapheme_nn import Merge

KINDS, CHANNELS = 4, 32
COLD = 0.005  # what the temperature falls to, where it falls
CASES = (  # estimator, whether nodes are weighed by their existence, whether the temperature falls
    ("straight_through", False, False),
    ("gumbel", False, False),
    ("soft", False, False),
    ("soft", False, True),
    ("soft", True, False),
    ("soft", True, True),
)


def chains(count: int, seed: int) -> list[Data]:
    """As many with more runs than half their nodes as without."""
    center = torch.randn(KINDS, KINDS, generator=torch.Generator().manual_seed(7))
    generator, found = torch.Generator().manual_seed(seed), ([], [])
    while min(map(len, found)) < count // 2:
        n = int(torch.randint(8, 15, (), generator=generator))
        kind = torch.randint(KINDS, (n,), generator=generator)
        for node in range(1, n):
            if torch.rand((), generator=generator) < 0.5:
                kind[node] = kind[node - 1]
        many = 1 + (kind[1:] != kind[:-1]).sum() > n / 2
        x = center[kind] + 0.6 * torch.randn(n, KINDS, generator=generator)
        edge_index = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
        found[int(many)].append(Data(x=x, edge_index=edge_index, y=many.long()[None]))
    return [*found[0][: count // 2], *found[1][: count // 2]]


class Classifier(nn.Module):
    def __init__(self, merge: Merge, weighed: bool) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Linear(KINDS, CHANNELS), nn.ReLU(), nn.Linear(CHANNELS, CHANNELS))
        self.merge, self.weighed = merge, weighed
        self.after = nn.Sequential(nn.Linear(CHANNELS, CHANNELS), nn.ReLU())
        self.head = nn.Linear(CHANNELS, 2)

    def forward(self, graphs: Batch) -> Tensor:
        morph = self.merge(self.before(graphs.x), graphs.edge_index, None, graphs.batch)
        y = self.after(morph.x)
        if self.weighed and morph.existence is not None:
            y = y * morph.existence[:, None]
        return self.head(global_add_pool(y, morph.batch, graphs.num_graphs))


def train(estimator: str, weighed: bool, falls: bool, seed: int, epochs: int) -> tuple[float, float, float, float]:
    """First and last loss; the share of 500 new chains told right by the network in training, and in eval()."""
    torch.manual_seed(seed)
    learned, new = chains(600, 10 + seed), Batch.from_data_list(chains(500, 100 + seed))
    merge = Merge(0.5, estimator=estimator)
    model, hot, losses = Classifier(merge, weighed), merge.temperature, []
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        if falls:
            merge.temperature = hot * (COLD / hot) ** (epoch / (epochs - 1))
        total = 0.0
        for batch in DataLoader(learned, batch_size=32, shuffle=True):
            loss = cross_entropy(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.num_graphs / len(learned)
        losses.append(total)
    with torch.no_grad():
        right = [(model.train(mode)(new).argmax(1) == new.y).float().mean().item() for mode in (True, False)]
    return losses[0], losses[-1], right[0], right[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args()
    table = Table("estimator", "sum weighed by existence", "temperature", "loss", "in training", "in eval(), worst")
    for estimator, weighed, falls in CASES:
        runs = [train(estimator, weighed, falls, seed, options.epochs) for seed in range(options.seeds)]
        first, last, training, evaluated = (sum(column) / len(runs) for column in zip(*runs, strict=True))
        worst = min(run[3] for run in runs)
        falling = f"0.1 to {COLD}" if falls else "0.1"
        figures = f"{first:.2f} to {last:.2f}", f"{training:.0%}", f"{evaluated:.0%}, {worst:.0%}"
        table.add_row(estimator, "yes" if weighed else "no", falling, *figures)
    Console().print(table)


if __name__ == "__main__":
    main()
