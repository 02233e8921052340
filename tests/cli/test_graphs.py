"""The command with graphs: what goes in and out, with a stand-in for the model, which turns every graph's edges round."""

import json
import shlex
import subprocess
from io import BytesIO
from types import SimpleNamespace

import pytest

from grapheme_nn.cli.train import _shown
from grapheme_nn.cli.trained import use
from grapheme_nn.data import Graph, Pair, read_inputs, write_pairs

SUM = {"nodes": ["+", "x", "1"], "edges": [[1, 0, 0], [2, 0, 1]]}
TURNED = {"nodes": ["+", "x", "1"], "edges": [[0, 1, 0], [0, 2, 1]]}


def turned(graph):
    return graph._replace(edges=tuple((target, source, kind) for source, target, kind in graph.edges))


def stand_in(monkeypatch, tmp_path, make, input_unit="graph", target_unit="graph"):
    def transform(inputs, *, features=None, batch_size=256, return_scores=False):
        made = [make(given) for given in inputs]
        return (made, [0.98765] * len(made)) if return_scores else made

    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "model" / name).touch()
    config = SimpleNamespace(input_unit=input_unit, target_unit=target_unit, features=(), edges="operands")
    alike = {"too_long": lambda side: "", "unlike_training": lambda inputs, features=None: [None] * len(inputs)}
    model = SimpleNamespace(config=config, transform=transform, as_targets=list, **alike)
    monkeypatch.setattr("grapheme_nn.ensemble.load", lambda folder, device="cpu": model)


@pytest.fixture
def turning(monkeypatch, tmp_path):
    stand_in(monkeypatch, tmp_path, turned)


def answers(result):
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.usefixtures("turning")
def test_a_graph_by_itself_is_answered_by_a_graph_by_itself(grapheme):
    assert answers(grapheme("predict", "model", given=json.dumps(SUM) + "\n")) == [TURNED]


@pytest.mark.usefixtures("turning")
def test_other_keys_of_a_line_come_back(grapheme):
    rows = [
        {"id": 7, "input": SUM, "target": SUM, "tags": ["a", None]},
        {"input": SUM},
        SUM,
        {"input": SUM, "id": "\ud800"},
    ]
    given = "".join(f"{json.dumps(row)}\n" for row in rows)
    assert answers(grapheme("predict", "model", "--batch-size", 2, given=given)) == [
        {"id": 7, "tags": ["a", None], "output": TURNED},
        {"output": TURNED},
        TURNED,
        {"id": "\ud800", "output": TURNED},
    ]


@pytest.mark.usefixtures("turning")
def test_a_score_stands_beside_the_graph(grapheme):
    found = answers(grapheme("predict", "model", "--scores", given=json.dumps(SUM) + "\n"))
    assert found == [{"output": TURNED, "score": 0.9877, "unlike_training": None}]


@pytest.mark.usefixtures("turning")
def test_what_comes_out_goes_in_again(grapheme):
    once = grapheme("predict", "model", given=json.dumps(SUM) + "\n").stdout
    assert answers(grapheme("predict", "model", given=once)) == [SUM]


def test_a_text_becomes_a_graph_and_a_graph_a_text(grapheme, monkeypatch, tmp_path):
    stand_in(monkeypatch, tmp_path, lambda text: Graph(tuple(text), ()), input_unit="codepoint")
    found = answers(grapheme("predict", "model", given="ab\n"))
    assert found == [{"input": "ab", "output": {"nodes": ["a", "b"], "edges": []}}]
    stand_in(monkeypatch, tmp_path, lambda graph: "".join(graph.nodes), target_unit="codepoint")
    assert answers(grapheme("predict", "model", given=json.dumps(SUM) + "\n")) == [{"output": "+x1"}]


def test_columns_below_a_header_stand_beside_the_graph(grapheme, monkeypatch, tmp_path):
    stand_in(monkeypatch, tmp_path, lambda text: Graph(tuple(text), ()), input_unit="codepoint")
    _, found = answers(grapheme("predict", "model", given="id\tword\n7\tab\n"))
    assert found == {"input": "ab", "id": "7", "output": {"nodes": ["a", "b"], "edges": []}}


@pytest.mark.usefixtures("turning")
def test_an_error_of_a_line_is_not_that_of_its_answer(grapheme):
    result = grapheme("predict", "model", given=json.dumps({"input": SUM, "error": "old"}) + "\n")
    assert answers(result) == [{"output": TURNED}]
    assert "answers have their own error" in result.stderr


@pytest.mark.usefixtures("turning")
def test_a_bad_graph_ends_in_a_sentence_and_is_left_out_where_wished(grapheme):
    lines = json.dumps(SUM) + "\n" + json.dumps({"nodes": ["x"], "edges": [[0, 1]]}) + "\n"
    result = grapheme("predict", "model", given=lines)
    assert result.exit_code == 1
    assert "the standard input:2: edge 0 refers to node 1, but there is 1 node" in result.stderr
    assert json.loads(result.stdout) == TURNED
    made, error = answers(grapheme("predict", "model", "--skip-bad-lines", given=lines))
    assert made == TURNED
    assert error["error"].startswith("the standard input:2: edge 0 refers to node 1")


@pytest.mark.usefixtures("turning")
@pytest.mark.parametrize("tabs", [0, 1, 4])
@pytest.mark.parametrize("before", ["", "graph"])
def test_json_that_is_not_valid_is_no_text_to_a_model_of_graphs(grapheme, before, tabs):
    good = json.dumps(SUM)
    line = good[:-1].replace(" ", "\t", tabs)
    result = grapheme("predict", "model", given=f"{good}\n{line}\n" if before else f"{line}\n{good}\n")
    assert result.exit_code == 1
    says = f"the standard input:{2 if before else 1}: invalid JSON: Expecting ',' delimiter at character {len(good)}\n"
    assert says in result.stderr


@pytest.mark.usefixtures("turning")
def test_every_line_of_a_model_of_graphs_has_its_answer(grapheme):
    given = [SUM, "", {"id": 3, "input": {"nodes": []}}, {"text": "x"}, {"id": 4, "input": "a text"}, SUM]
    lines = "".join(f"{json.dumps(row) if row else row}\n" for row in given)
    empty = {"nodes": [], "edges": []}
    found = answers(grapheme("predict", "model", "--skip-bad-lines", given=lines))
    assert found[:3] == [TURNED, {"input": "", "output": empty}, {"id": 3, "output": empty}]
    assert "there is no key 'input'; the keys are 'text'" in found[3]["error"]
    assert found[4]["id"] == 4
    assert "model reads graphs" in found[4]["error"]
    assert found[5:] == [TURNED]


@pytest.mark.usefixtures("turning")
def test_with_json_the_answer_says_all_that_the_line_says(grapheme):
    row = {"id": 7, "input": SUM, "target": SUM}
    given = f"{json.dumps(SUM)}\n{json.dumps(row)}\n"
    found = answers(grapheme("predict", "model", "--json", "--scores", given=given))
    made = {"output": TURNED, "score": 0.9877, "unlike_training": None}
    assert found == [{"input": SUM} | made, row | made]


@pytest.mark.usefixtures("turning")
def test_a_text_for_a_model_of_graphs_is_refused(grapheme, refused):
    says = 'model reads graphs, such as {"nodes": ["+", "x", "1"]'
    refused(
        grapheme("predict", "model", given="x + 1\n"), 1, says, "the standard input:1: ", "but this is the text 'x + 1'"
    )


def test_a_graph_for_a_model_of_texts_is_refused(grapheme, refused, model, tmp_path):
    given = json.dumps(SUM) + "\n"
    refused(grapheme("predict", model, given=given), 1, "reads texts, but this is a graph of 3 nodes")
    write_pairs([Pair("x", Graph(("x",), ()))], tmp_path / "pairs.jsonl")
    refused(
        grapheme("evaluate", model, tmp_path / "pairs.jsonl"),
        1,
        "pairs.jsonl: ",
        "makes texts, but this is a graph of 1 node",
    )


@pytest.fixture
def graph_pairs(tmp_path):
    one, leaf = Graph.from_dict(SUM), Graph(("x",), ())
    pairs = [Pair(one, turned(one)), Pair(one, one), Pair(leaf, leaf), Pair(one, one)]
    write_pairs(pairs, tmp_path / "graphs.jsonl")
    return tmp_path / "graphs.jsonl"


@pytest.mark.usefixtures("turning")
def test_graphs_are_evaluated_by_isomorphism_nodes_and_edges(grapheme, graph_pairs):
    result = grapheme("evaluate", "model", graph_pairs)
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[:2] == ["pairs 4", "exact match 50.00%"]
    assert lines[-3:] == ["node F1 100.00%", "edge F1 33.33%", "edit distance 2.0000"]


@pytest.mark.usefixtures("turning")
def test_the_same_figures_come_as_json(grapheme, graph_pairs):
    found = answers(grapheme("evaluate", "model", graph_pairs, "--json", "--errors", 1))[0]
    assert list(found)[:2] == ["exact_match", "pairs"]
    assert found["edge_f1"] == pytest.approx(1 / 3)
    assert found["confusions"] == [{"target": "1", "predicted": "1(+)", "times": 2}]


@pytest.mark.usefixtures("turning")
def test_wrong_graphs_are_drawn_beside_their_targets(grapheme, graph_pairs):
    result = grapheme("evaluate", "model", graph_pairs, "--errors", 5)
    assert "       2  '1' -> '1(+)'" in result.stdout
    assert "input 2    target    predicted" in result.stdout
    assert "├─ x       ├─ x      └─ +" in result.stdout
    assert "input 4" in result.stdout
    assert "input 1" not in result.stdout


@pytest.mark.usefixtures("turning")
def test_wrong_graphs_are_written_as_jsonl(grapheme, graph_pairs, tmp_path):
    assert grapheme("evaluate", "model", graph_pairs, "--wrong", tmp_path / "wrong").exit_code == 0
    row = {"input": SUM, "target": SUM, "prediction": TURNED, "score": 0.98765}
    assert [json.loads(line) for line in (tmp_path / "wrong").read_text().splitlines()] == [row, row]


def test_a_pair_of_graphs_is_shown_in_a_few_words():
    pair = Pair(Graph.from_dict(SUM), Graph(("x",), ()), ("N",))
    assert _shown(pair) == "a graph of 3 nodes and 2 edges (+ x 1) (N) -> a graph of 1 node and 0 edges (x)"
    assert _shown(Pair("a", "b")) == "'a' -> 'b'"


@pytest.mark.parametrize("features", [(), ("N", "PL")])
def test_the_command_that_tries_a_model_gives_it_the_smallest_graph(tmp_path, features):
    small = Graph(("it's \\n 'x'",), ())
    pairs = [Pair(Graph.from_dict(SUM), "", features), Pair(small, "", features)]
    command = use(pairs, tmp_path / "my model")
    line, predict = command.split(" | ")
    assert shlex.split(predict) == ["grapheme", "predict", str(tmp_path / "my model")]
    printed = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout
    assert read_inputs(BytesIO(printed)) == [pairs[1]]


def test_a_graph_too_long_for_a_command_is_not_shown(tmp_path):
    assert use([Pair(Graph(("x",) * 10_000, ()), "")], tmp_path).endswith("FILE.jsonl")
