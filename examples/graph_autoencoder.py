"""A graph autoencoder: a labelled DAG becomes one vector, and the vector becomes a DAG again.

The decoder knows no order of the nodes and is not told which of its nodes stands for which of the target's:
`StructuralLoss` finds out, and its gradient teaches labels, existence and edges at once.

    python examples/graph_autoencoder.py
"""

import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GraphConv, global_add_pool

from grapheme_nn import Rewire, Split, StructuralLoss, edit_distance, is_acyclic

KINDS, SLOTS, CHANNELS = 5, 6, 64


def random_dag(generator: torch.Generator) -> Data:
    """A DAG of 3 to 6 nodes; `x` says what a node is, and `label` the same for the loss."""
    n = int(torch.randint(3, SLOTS + 1, (), generator=generator))
    kind = torch.randint(KINDS, (n,), generator=generator)
    edge_index = (torch.rand(n, n, generator=generator) < 0.4).triu(1).nonzero().T
    return Data(x=kind, label=kind, edge_index=edge_index)


class Autoencoder(nn.Module):
    """Messages along the edges and against them, a sum over the nodes; then one node splits, and is rewired."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(KINDS, CHANNELS)
        self.ahead = nn.ModuleList(GraphConv(CHANNELS, CHANNELS) for _ in range(2))
        self.back = nn.ModuleList(GraphConv(CHANNELS, CHANNELS) for _ in range(2))
        wide = nn.Linear(CHANNELS, CHANNELS), nn.ReLU(), nn.Linear(CHANNELS, CHANNELS)
        self.latent = nn.Sequential(nn.LayerNorm(CHANNELS), *wide, nn.LayerNorm(CHANNELS))
        self.decoder = nn.Sequential(Split(CHANNELS, SLOTS), Rewire(CHANNELS, reach=SLOTS - 1))
        self.label = nn.Linear(CHANNELS, KINDS + 1)  # the last column: whether the node exists

    def forward(self, graphs: Batch) -> Data:
        x = self.embedding(graphs.x)
        for ahead, back in zip(self.ahead, self.back, strict=True):
            x = x + (ahead(x, graphs.edge_index) + back(x, graphs.edge_index.flip(0))).relu()
        z = self.latent(global_add_pool(x, graphs.batch))  # [graphs, CHANNELS]: all that the decoder is told
        nothing = torch.empty(2, 0, dtype=torch.long)
        decoded = self.decoder(Data(x=z, edge_index=nothing, batch=torch.arange(z.size(0))))
        out = self.label(decoded.x.relu())
        predicted = decoded.as_data()
        predicted.label_log_prob, predicted.existence = out[:, :-1].log_softmax(1), out[:, -1].sigmoid()
        return predicted


def hard_graph(predicted: Data, graph: int) -> Data:
    """The most probable graph: nodes that exist, each with its best label, and the edges between them."""
    there = (predicted.batch == graph) & (predicted.existence > 0.5)
    number = there.cumsum(0) - 1
    edges = predicted.edge_index[:, (predicted.edge_weight > 0.5) & there[predicted.edge_index].all(0)]
    return Data(x=predicted.label_log_prob.argmax(1)[there], edge_index=number[edges])


def judge(model: Autoencoder, loss: StructuralLoss, graphs: list[Data]) -> tuple[float, float]:
    """The mean distance, and the mean number of edits from what comes out to the graph."""
    model.eval()
    with torch.no_grad():
        target = Batch.from_data_list(graphs)
        predicted = model(target)
        distance = loss(predicted, target).mean.item()
    edits = 0.0
    for number, graph in enumerate(graphs):
        hard = hard_graph(predicted, number)
        assert is_acyclic(hard.edge_index, hard.num_nodes)
        edits += edit_distance(hard, graph).value
    return distance, edits / len(graphs)


def main(graphs: int = 40, steps: int = 300) -> tuple[float, float]:
    """Distances before and after, of the graphs that are learned by heart."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    examples = [random_dag(generator) for _ in range(graphs)]
    target = Batch.from_data_list(examples)
    model, loss = Autoencoder(), StructuralLoss(clique=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    before, edits = judge(model, loss, examples)
    print(f"before: distance {before:.3f}, {edits:.2f} edits a graph")
    for step in range(1, steps + 1):
        model.train()
        distance = loss(model(target), target)
        optimizer.zero_grad()
        distance.mean.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            terms = ", ".join(f"{name} {getattr(distance, name).mean().item():.3f}" for name in ("node", "edge"))
            print(f"step {step}: distance {distance.mean.item():.3f} ({terms})")
    after, edits = judge(model, loss, examples)
    print(f"after: distance {after:.3f}, {edits:.2f} edits a graph")
    return before, after


if __name__ == "__main__":
    main()
