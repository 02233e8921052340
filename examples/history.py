"""A sentence becomes a graph, the letters of each word merge, and the graph becomes text again."""

import torch
from rich.console import Console
from rich.table import Table

from grapheme_nn import Assignment, graph_to_text, text_to_graph

SENTENCE = "every change of structure is a matrix"

letters = text_to_graph(SENTENCE)
is_space = letters.x == ord(" ")
# A space begins a cluster, and so does the letter after it: words and spaces alternate.
begins = is_space | torch.cat([torch.tensor([False]), is_space[:-1]])
words = Assignment.from_clusters(begins.cumsum(0))
edge_index, _ = words.connect(letters.edge_index)
pairs = Assignment.from_clusters(torch.arange(words.num_targets) // 2)  # a word and the space after it
history = words.compose(pairs)

feature = torch.randn(letters.num_nodes, 4, requires_grad=True)
history.reduce(feature)[0].sum().backward()  # the gradient of the first merged node

console = Console()
console.print(f"text   {SENTENCE!r}")
console.print(f"graph  {letters.num_nodes} nodes, {letters.num_edges} edges")
console.print(f"merge  {words.num_targets} nodes, {edge_index.size(1)} edges, then {pairs.num_targets} nodes")
table = Table("node after", "made of", "nodes before", "weights", title="history")
for node in range(history.num_targets):
    sources, weights = history.contributors(node)
    made_of = "".join(SENTENCE[source] for source in sources.tolist())
    shares = " ".join(dict.fromkeys(f"{weight:.3f}" for weight in weights.tolist()))
    table.add_row(str(node), repr(made_of), f"{int(sources[0])}..{int(sources[-1])}", shares)
console.print(table)
reached = feature.grad.abs().sum(dim=1).nonzero()[:, 0].tolist()
console.print(f"gradient of node 0 reaches the letters {reached} and no others")
console.print(f"text   {graph_to_text(letters)!r}")
assert graph_to_text(letters) == SENTENCE
assert reached == history.contributors(0)[0].tolist()
