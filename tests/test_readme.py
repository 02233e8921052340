"""Every Python example of the README and of the docs runs, and what it shows comes out."""

import re
from io import BytesIO
from pathlib import Path

import pytest
from torch_geometric.utils import is_undirected

from grapheme_nn import MORPHS, OBJECTIVES, TrainConfig, train
from grapheme_nn.data import generate, read_pairs

ROOT = Path(__file__).parent.parent
BLOCKS, GRAPHS, MORPH_BLOCKS = (
    re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
    for name in ("README.md", "docs/graphs.md", "docs/morphs.md")
)
# What tells each example from the others.
MARKS = {
    "graphs": 'generate("derivative"',
    "train": 'generate("dates"',
    "chain": "as_data()",
    "change": "from_clusters(torch.tensor",
    "compare": "StructuralLoss.edit",
    "add": "OBJECTIVES.register",
    "check": "gradient_report(model",
}


def run(name, change=("", "")):
    (block,) = (block for block in BLOCKS if MARKS[name] in block)
    assert change[0] in block
    exec(compile(block.replace(*change) if change[0] else block, "README.md", "exec"), {"__name__": "__main__"})


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_there_is_no_example_without_a_test():
    assert [sum(mark in block for mark in MARKS.values()) for block in BLOCKS] == [1] * len(MARKS)


def test_the_readme_trains_a_model_of_graphs(capsys, elsewhere):
    run("graphs", ("count=20_000", "count=60"))  # learns nothing, but takes a second
    assert capsys.readouterr().out
    assert Path("runs/derivative/model.safetensors").exists()


def test_the_guide_to_graphs_makes_pairs_and_transforms_all_kinds_of_graphs(capsys, elsewhere):
    small = TrainConfig(epochs=1, width=16, hidden=8, layers=1)
    train(generate("derivative", 40, seed=1), [], small, Path("runs/derivative"))
    names = {}
    for block in GRAPHS:
        exec(compile(block, "docs/graphs.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "UnaryOp\n├─ op0: Not\n└─ operand0: Compare\n" in shown
    assert "Graph(nodes=('x', 'sin'), edges=((0, 1, 0),), directed=True) Graph(nodes=('7', '3')" in shown
    pair = read_pairs("code.jsonl")[0]
    assert pair.target.nodes == ("Compare", "Name a", "NotEq", "Name b")
    assert len(names["scores"]) == 2


def test_the_guide_to_graphs_shows_pairs_that_can_be_read():
    text = (ROOT / "docs" / "graphs.md").read_text(encoding="utf-8")
    lines = re.findall(r'^    (\{"input": .*\})$', text, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        (pair,) = read_pairs(BytesIO(f"{line}\n".encode()))
        assert pair.target.edges


def test_the_readme_trains_a_model(capsys, elsewhere):
    run("train", ("count=10_000", "count=60"))  # learns nothing, but takes a second
    assert "Evaluation(exact_match=" in capsys.readouterr().out
    assert Path("runs/dates/model.safetensors").exists()


def test_the_readme_chains_operators_in_a_pyg_model(capsys):
    run("chain")
    shown = capsys.readouterr().out
    assert "Morph(4 nodes, 4 edges, 8 channels, 2 graphs) Assignment(10 -> 4," in shown


def test_the_guide_to_morphs_merges_an_undirected_graph():
    names = {}
    exec(compile(MORPH_BLOCKS[0], "docs/morphs.md", "exec"), names)
    assert names["y"].shape == (1, 16)
    assert is_undirected(names["coarse"].edge_index, num_nodes=names["coarse"].num_nodes)


def test_the_readme_changes_a_graph(capsys):
    run("change")
    assert "tensor([1, 2])" in capsys.readouterr().out


def test_the_readme_learns_from_a_distance_between_graphs(capsys):
    run("compare")
    same, other = re.search(r"tensor\(\[(.*), (.*)\]\)", capsys.readouterr().out).groups()
    assert abs(float(same)) < 1e-6 < 1 < float(other)


def test_the_readme_adds_an_objective_and_a_morph_and_trains_with_them(capsys, elsewhere):
    try:
        run("add")
    finally:
        del OBJECTIVES["in_place"]
        del MORPHS["pairs"]
    assert "['GRAPH', 'NEURAL']" in capsys.readouterr().out


def test_the_readme_checks_gradients(capsys):
    run("check")
    assert "relabel.label.weight" in capsys.readouterr().out
