"""The network is its chain of morphs, runs on any DAG, spells what it can copy, and comes back from its folder."""

import json
from dataclasses import replace
from functools import reduce
from math import exp
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from grapheme_nn import Ensemble, GraphTransformNet, StructuralLoss, is_acyclic, texts_to_batch
from grapheme_nn.graph import name_identities
from grapheme_nn.model import ModelConfig, ModelError
from grapheme_nn.objective.ctc import ctc_value, merge_repeats
from grapheme_nn.registry import OBJECTIVES

LOSSES = ("monotone", "structural", "path", "ctc")
PROBABILITIES = ("monotone", "path", "ctc")  # whose value is minus the log of a probability
SPLIT, MERGED = ("split",), ("merge", "lift", "split")
CHAINS_OF_MORPHS = (SPLIT, MERGED, ("merge", "split"), ("merge",), ("local_pool", "split"))
MORE_CHAINS = (
    *CHAINS_OF_MORPHS,
    ("rewire", "split"),
    ("soft_pool", "split"),
    ("merge", "lift", "rewire", "merge", "split"),
)
TEXTS = ["graph", "a", "neuron", "élan", "☃", "ab"]
FEATURES = [("V", "PST"), (), ("N",), ("N", "PL", "DAT"), ("V",), ("X",)]


def net(seed: int = 0, **options) -> GraphTransformNet:
    torch.manual_seed(seed)
    small = {"width": 16, "hidden": 8, "heads": 2, "layers": 2, "dropout": 0.0, "buckets": 64}
    return GraphTransformNet(ModelConfig(**{"labels": tuple("abcdeghnpru"), **small, **options})).eval()


def value_of(model, inputs, *targets: str):
    return model.objective(model(inputs), texts_to_batch(targets)).value


def diamond(order: list[int]) -> Data:
    """0 -> 1 -> 3, 0 -> 2 -> 3, its nodes numbered by `order`."""
    number = torch.tensor(order)
    x = torch.zeros(4, dtype=torch.long)
    x[number] = torch.tensor([97, 98, 99, 100])
    return Data(x=x, edge_index=number[torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])])


def random_dags() -> Batch:
    """DAGs that are no chains, shuffled in their numbers, two of which share their units; and a node alone."""
    generator = torch.Generator().manual_seed(0)
    graphs = [diamond([0, 1, 2, 3]), diamond([3, 1, 2, 0])]
    for n in (6, 9):
        ends = torch.randint(0, n, (2, 2 * n), generator=generator).sort(0).values
        number = torch.randperm(n, generator=generator)
        x = torch.randint(97, 101, (n,), generator=generator)  # few units, so that some nodes are alike and merge
        graphs.append(Data(x=x, edge_index=number[ends[:, ends[0] < ends[1]].unique(dim=1)]))
    return Batch.from_data_list([*graphs, Data(x=torch.tensor([5]), edge_index=torch.zeros(2, 0, dtype=torch.long))])


INPUTS = {"text": lambda: texts_to_batch(TEXTS), "graphs": random_dags}


def by_hand(model, batch):
    """What the network's docstring says it is, and the assignments of its morphs."""
    graph = model.encoder(batch)
    assignments = []
    for morph in model.morphs:
        graph = morph(graph)
        assignments.append(graph.assignment.dense().double())
    predicted = model.relabel(graph)
    if model.next is not None:
        predicted = replace(predicted, next_log_prob=model.next(predicted.x, predicted.mask))
    return predicted, assignments


def assert_the_network_is_its_chain(model, batch):
    torch.manual_seed(1)
    whole = model(batch)
    torch.manual_seed(1)
    predicted, assignments = by_hand(model, batch)
    torch.testing.assert_close(whole.label_log_prob, predicted.label_log_prob, rtol=0, atol=0)
    assert (whole.next_log_prob is None) == (model.next is None)
    if model.next is not None:
        torch.testing.assert_close(whole.next_log_prob, predicted.next_log_prob, rtol=0, atol=0)
    for ours, theirs in zip(whole.edges(), predicted.edges(), strict=True):
        assert torch.equal(ours, theirs)
    ours, theirs = model.decode(whole), model.decode(predicted)
    assert torch.equal(ours.x, theirs.x)
    assert torch.equal(ours.edge_index, theirs.edge_index)
    assert torch.equal(ours.batch, theirs.batch)
    product = reduce(torch.matmul, assignments, torch.eye(batch.num_nodes, dtype=torch.float64))
    torch.testing.assert_close(whole.history.dense().double(), product, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("morphs", MORE_CHAINS, ids=",".join)
@pytest.mark.parametrize("loss", LOSSES)
def test_each_morph_called_by_hand_gives_what_the_network_gives(loss, morphs, kind, training):
    assert_the_network_is_its_chain(net(loss=loss, morphs=morphs).train(training), INPUTS[kind]())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", INPUTS)
def test_the_default_network_is_its_chain_of_morphs_dropout_and_all(kind, training):
    torch.manual_seed(0)
    assert_the_network_is_its_chain(GraphTransformNet(ModelConfig(("a", "b"))).train(training), INPUTS[kind]())


def test_merging_is_in_the_history():
    model = net(morphs=("merge", "split"))
    with torch.no_grad():
        model.morphs[0][0].theta.fill_(-9.0)  # everything alike merges
    predicted = model(texts_to_batch(["aaaa"]))
    assert predicted.graph.num_nodes < 8
    nodes, weights = predicted.history.contributors(0)
    assert len(nodes) > 1
    assert weights.sum().item() == pytest.approx(1)


def test_all_registered_objectives_are_tested_here():
    assert set(LOSSES) == set(OBJECTIVES)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("morphs", [SPLIT, MERGED], ids=",".join)
def test_on_chains_shifts_give_what_edges_give(loss, morphs):
    model = net(loss=loss, morphs=morphs, features=("V", "N")).double()
    batch = texts_to_batch(TEXTS, features=FEATURES)
    edges = batch.clone()
    edges.edge_index = batch.edge_index.flip(1)  # the same edges, but not in order
    by_shifts, by_edges = model(batch), model(edges)
    assert by_shifts.graph.is_chain
    assert not by_edges.graph.is_chain
    there = by_shifts.mask
    torch.testing.assert_close(by_shifts.label_log_prob[there], by_edges.label_log_prob[there])
    if loss == "path":
        torch.testing.assert_close(by_shifts.next_log_prob[:, 1:][there], by_edges.next_log_prob[:, 1:][there])


def test_texts_with_features_are_what_pyg_makes_of_graphs_with_features():
    ours = texts_to_batch(TEXTS, features=FEATURES)
    assert is_acyclic(ours.edge_index, ours.num_nodes)
    graphs = texts_to_batch(TEXTS).to_data_list()
    for graph, names in zip(graphs, FEATURES, strict=True):
        graph.feature = torch.tensor(name_identities(names), dtype=torch.long)
    theirs = Batch.from_data_list(graphs, follow_batch=["feature"])
    for name in ("x", "edge_index", "batch", "feature", "feature_batch"):
        assert torch.equal(ours[name], theirs[name]), name
    model = net(features=("V", "N"))
    torch.testing.assert_close(model(ours).label_log_prob, model(theirs).label_log_prob)
    assert [graph.feature.tolist() for graph in ours.to_data_list()] == [g.feature.tolist() for g in graphs]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("morphs", [SPLIT, MERGED], ids=",".join)
def test_any_dag_goes_through_forward_and_backward(loss, morphs):
    model = net(loss=loss, morphs=morphs).train()
    batch = Batch.from_data_list(
        [
            diamond([0, 1, 2, 3]),
            diamond([3, 1, 2, 0]),
            Data(x=torch.tensor([5]), edge_index=torch.zeros(2, 0, dtype=torch.long)),
        ]
    )
    prediction = model(batch)
    assert prediction.label_log_prob.shape == (3, 8, 13)
    value = model.objective(prediction, texts_to_batch(["abcd", "ba", "a"])).value
    value.sum().backward()
    assert value.isfinite().all()
    # The first slot of a graph is made from its source, wherever that has its number.
    assert prediction.node[:, 0].tolist() == [0, 7, 8]
    assert all(node in prediction.history.contributors(2 * node)[0] for node in (0, 7, 8))
    edges, weights = prediction.edges()
    assert is_acyclic(edges, 18)
    assert ((weights >= 0) & (weights <= 1)).all()
    data = prediction.as_data()
    assert (data.num_graphs, data.label_log_prob.shape, data.existence.shape) == (3, (18, 12), (18,))
    for batch in (data, model.decode(prediction)):
        assert torch.equal(Batch.from_data_list(batch.to_data_list()).edge_index, batch.edge_index)


@pytest.mark.parametrize("morphs", [SPLIT, MERGED, ("local_pool", "split")], ids=",".join)
def test_numbering_of_a_dag_does_not_matter(morphs):
    model = net(morphs=morphs).double()
    one, other = (
        model(Batch.from_data_list([diamond(order)])).label_log_prob for order in ([0, 1, 2, 3], [3, 1, 2, 0])
    )
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("morphs", CHAINS_OF_MORPHS, ids=",".join)
def test_what_else_is_in_a_batch_does_not_matter(morphs):
    model, batch = net(morphs=morphs).double(), random_dags()
    together = model(batch)
    for item, graph in enumerate(batch.to_data_list()):
        alone = model(Batch.from_data_list([graph]))
        slots = int(alone.mask.sum())
        assert slots == int(together.mask[item].sum())
        torch.testing.assert_close(alone.label_log_prob[0], together.label_log_prob[item, :slots])


def test_history_leads_from_nodes_to_slots():
    history = net(features=("V",), parts=3)(texts_to_batch(["ab", "c"], features=[("V", "PST"), ("V",)])).history
    assert (history.num_sources, history.num_targets) == (3, 9)
    assert [history.contributors(slot)[0].item() for slot in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("morphs", MORE_CHAINS, ids=",".join)
def test_gradient_reaches_every_parameter(loss, morphs):
    model = net(loss=loss, morphs=morphs, features=("V", "N"), parts=2).double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for module in model.modules():  # so that some of the nodes merge, not all
            if hasattr(module, "theta"):
                module.temperature = 1.0
    batch = texts_to_batch(TEXTS, features=FEATURES)
    targets = ("grapec", "a", "neure", "ana", "c", "ba") if "split" in morphs else ("gr", "a", "n", "e", "c", "a")
    prediction = model(batch)
    found = model.objective(prediction, texts_to_batch(targets))
    (found.mean + sum(prediction.graph.losses.values())).backward()
    dead = [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert dead == []
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_the_whole_network_match_differences(loss):
    model = net(loss=loss, width=8, hidden=4, layers=1, buckets=4).double()
    inputs, wanted = texts_to_batch(["abé", "☃"]), texts_to_batch(["aaé", "c"])

    def value(table):
        prediction = torch.func.functional_call(model, {"encoder.embedding.table": table}, (inputs,))
        return model.objective(prediction, wanted).value

    assert torch.autograd.gradcheck(value, model.encoder.embedding.table.detach().requires_grad_())


def certain(labels, **options):
    """A network that copies each unit, whatever it is, with certainty."""
    model = net(parts=1, labels=labels, **options)
    with torch.no_grad():
        model.relabel.label.weight.zero_()
        model.relabel.label.bias.fill_(-30.0)
        model.relabel.label.bias[1] = 30.0
        if model.next is not None:
            # All steps are alike, so the walk of most slots is not the best one; make only the next slot reachable.
            model.next.reach = 1
            nn.init.zeros_(model.next.end.weight)
            nn.init.constant_(model.next.end.bias, -9)
            nn.init.zeros_(model.next.query.weight)
            nn.init.zeros_(model.next.query.bias)
    return model


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", INPUTS)
def test_the_structural_loss_takes_a_prediction_and_the_gradient_reaches_the_network(loss, kind):
    model = net(loss=loss, morphs=MERGED).train()
    batch = INPUTS[kind]()
    distance = StructuralLoss()(model(batch), batch)
    assert distance.total.shape == (batch.num_graphs,)
    assert distance.total.isfinite().all()
    distance.mean.backward()
    for name in ("encoder.embedding.table", "morphs.2.children_of.weight", "relabel.label.weight"):
        gradient = model.get_parameter(name).grad
        assert gradient.isfinite().all()
        assert gradient.any(), name


@pytest.mark.parametrize("kind", INPUTS)
def test_a_prediction_that_is_certain_and_right_has_no_structural_loss_and_a_wrong_one_has(kind):
    model, batch = certain(tuple("abcdeghnpru")), INPUTS[kind]()
    predicted = model(batch)
    right = StructuralLoss()(predicted, batch).total
    assert right.abs().max() < 1e-3
    other = batch.clone()
    other.x = torch.full_like(batch.x, ord("r"))
    assert (StructuralLoss()(predicted, other).total > 0.1).all()
    if kind == "graphs":
        turned = batch.clone()
        turned.edge_index = batch.edge_index.flip(0)
        assert (StructuralLoss()(predicted, turned).total[:4] > 0.1).all()


def test_two_units_without_a_label_are_not_the_same_to_the_structural_loss():
    predicted = certain(("a",))(texts_to_batch(["☃é"]))  # copies both
    assert StructuralLoss()(predicted, texts_to_batch(["☃é"])).total.item() < 1e-3
    assert StructuralLoss()(predicted, texts_to_batch(["☃q"])).total.item() > 0.1


@pytest.mark.parametrize("loss", LOSSES)
def test_an_empty_output_has_a_score(loss):
    model = net(loss=loss, labels=("a",))
    empty = model.log_probabilities(["xy", "xyz"], ["", ""])
    beside = model.log_probabilities(["xy", "xyz"], ["", "a"])
    assert empty[0] == pytest.approx(beside[0], abs=1e-5)
    assert all(0 <= exp(value) <= 1 for value in empty)


@pytest.mark.parametrize("loss", PROBABILITIES)
def test_probabilities_of_all_short_texts_sum_to_one(loss):
    model = net(loss=loss, labels=("a", "b"), parts=1, width=8).double()
    wanted = ["", *"abx", *(p + q for p in "abx" for q in "abx")]  # x can be copied
    total = torch.tensor(model.log_probabilities(["xa"] * len(wanted), wanted), dtype=torch.double).exp().sum()
    assert total.item() == pytest.approx(1)


@pytest.mark.parametrize("loss", LOSSES)
def test_outputs_and_scores_are_the_same_alone_and_in_any_batch(loss):
    model = net(loss=loss, features=("V", "N"), parts=3)
    texts, features = [*TEXTS, ""], [*FEATURES, ("V",)]
    together, scores = model.transform(texts, features=features, return_scores=True)
    assert model.transform(texts, features=features, batch_size=2) == together
    alone = [
        model.transform([text], features=[named], return_scores=True)
        for text, named in zip(texts, features, strict=True)
    ]
    assert [text[0] for text, _ in alone] == together
    assert [score[0] for _, score in alone] == pytest.approx(scores, rel=1e-3)
    assert all(0 < score <= 1 for score in scores)


def test_long_texts_run_in_smaller_batches(monkeypatch):
    model, texts = net(), ["abc" * 10, "a", "b" * 29, "ab"]
    together = model.transform(texts)
    seen = []
    monkeypatch.setattr("grapheme_nn.model.MOST_CELLS", 900)
    model.register_forward_hook(lambda module, arguments, result: seen.append(result.mask.size(0)))
    assert model.transform(texts) == together
    assert seen == [2, 1, 1]


def test_many_labels_run_in_smaller_batches(monkeypatch):
    model, seen = net(labels=tuple(f"{n}" for n in range(98)), parts=2), []  # 200 cells a node
    monkeypatch.setattr("grapheme_nn.model.MOST_CELLS", 1000)
    model.register_forward_hook(lambda module, arguments, result: seen.append(result.mask.size(0)))
    model.transform(["ab"] * 5)
    assert seen == [2, 2, 1]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_text_too_long_to_look_at_or_to_score_is_named(monkeypatch, loss):
    monkeypatch.setattr("grapheme_nn.model.LONGEST", 50)
    monkeypatch.setattr("grapheme_nn.model.MOST_COMPARED", 20)
    model = net(loss=loss)
    with pytest.raises(
        ModelError, match=r"inputs\[1\]: the input has 51 nodes, but 50 are the most: cut it into pieces"
    ):
        model.transform(["a", "b" * 51])
    assert len(model.transform(["a" * 50])) == 1
    if loss == "monotone":  # sums as it goes
        assert len(model.log_probabilities(["a" * 50], ["a" * 50])) == 1
    else:
        with pytest.raises(ModelError, match="100 slots are too many for a score: ask for none, or cut"):
            model.log_probabilities(["a" * 50], ["a" * 50])


def test_nothing_and_empty_texts_come_back():
    assert net().transform([]) == []
    assert net().transform([], return_scores=True) == ([], [])
    assert net().transform(["", "", ""], return_scores=True) == (["", "", ""], [1.0, 1.0, 1.0])
    assert net().log_probabilities(["", ""], ["", "a"]) == [0.0, -float("inf")]


@pytest.mark.parametrize("loss", LOSSES)
def test_an_empty_target_has_the_same_probability_alone_and_beside_a_longer_one(loss):
    model = net(loss=loss)
    alone = model.log_probabilities(["ab"], [""])
    assert alone == pytest.approx(model.log_probabilities(["ab", "cd"], ["", "abc"])[:1], rel=1e-4)


def test_what_a_slot_copies_counts_with_what_it_spells():
    prediction = net()(texts_to_batch(["aé"]))
    raw, spelled = prediction.label_log_prob.exp(), prediction.spelled.exp()
    torch.testing.assert_close(spelled.sum(2), torch.ones(1, 4))
    torch.testing.assert_close(spelled[0, 0, 2], raw[0, 0, 1] + raw[0, 0, 2])  # a is the first label
    assert spelled[0, 0, 1] == 0
    torch.testing.assert_close(spelled[0, 2], raw[0, 2])  # é is none


@pytest.mark.parametrize("unit", ["codepoint", "cluster", "symbol", "decomposed"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_network_that_only_copies_returns_units_it_has_never_seen(unit, loss):
    model = certain(("a",), loss=loss, input_unit=unit, target_unit=unit)
    text = "t͡ʃ 한 👩‍👩‍👧"
    assert model.transform([text]) == [text]


def test_repeats_merge_and_a_void_keeps_two_apart():
    assert merge_repeats(torch.tensor([[3, 3, 0, 3, 4, 4]])).tolist() == [[3, 0, 0, 3, 4, 0]]


def test_ctc_agrees_with_torch_below_a_softmax_over_all_labels():
    torch.manual_seed(0)
    score = torch.randn(2, 6, 5, dtype=torch.double, requires_grad=True)
    target = torch.tensor([[1, 1, 2], [3, 4, 4]])
    slots, length = torch.tensor([6, 5]), torch.tensor([3, 2])
    log_prob = score.log_softmax(2)
    expected = torch.nn.functional.ctc_loss(log_prob.transpose(0, 1), target, slots, length, reduction="none")
    label = log_prob.gather(2, target[:, None].expand(-1, 6, -1))
    value, plan = ctc_value(label, log_prob[:, :, 0], torch.tensor([[0, 0, 2], [0, 1, 1]]), slots, length)
    assert ((plan >= -1e-9) & (plan <= 1 + 1e-9)).all()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v.sum(), score, retain_graph=True)[0] for v in (value, expected)))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_model_comes_back_from_its_folder_as_it_went_in(loss, tmp_path):
    model = net(loss=loss, features=("V",), morphs=MERGED, target_unit="symbol")
    model.save(tmp_path / "model", card="# Test", training={"seed": 3})
    again = GraphTransformNet.load(tmp_path / "model")
    assert again.config == model.config
    assert again.transform(TEXTS, features=FEATURES, return_scores=True) == model.transform(
        TEXTS, features=FEATURES, return_scores=True
    )
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert (tmp_path / "model" / "README.md").read_text() == "# Test"


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config["model"].update(changes)
    (folder / "config.json").write_text(json.dumps(config))


def replace_in_config(folder, old, new):
    text = (folder / "config.json").read_text()
    assert old in text
    (folder / "config.json").write_text(text.replace(old, new))


def swap_weights(folder):
    (folder.with_name("other") / "model.safetensors").replace(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: [p.unlink() for p in f.iterdir()] and f.rmdir(), "there is no such folder"),
        (lambda f: (f / "config.json").unlink(), "it has no config.json"),
        (lambda f: (f / "model.safetensors").unlink(), "it has no model.safetensors"),
        (lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]), "is damaged"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\x80\x04 pickle"), "is damaged"),
        (lambda f: (f / "config.json").write_text("{"), "is damaged"),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), "is damaged"),
        (lambda f: (f / "config.json").write_text("[]"), "does not describe a model"),
        (lambda f: change_config(f, colour="red"), "unknown key 'colour'"),
        (lambda f: change_config(f, width=32), "do not fit its configuration"),
        (lambda f: change_config(f, layers=3), "missing"),
        (lambda f: change_config(f, width=-1), "width must be"),
        (lambda f: change_config(f, width="wide"), "width must be"),
        (lambda f: change_config(f, loss="none"), "unknown loss"),
        (lambda f: change_config(f, morphs=["fold"]), "unknown morph 'fold': choose one of merge"),
        (lambda f: change_config(f, labels=[1, 2]), "labels must be strings"),
        (lambda f: change_config(f, dropout="x"), "dropout"),
        (lambda f: change_config(f, input_normalization="NFX"), "unknown input_normalization 'NFX': choose one of NFC"),
        (lambda f: replace_in_config(f, '"format": 1', '"format": 2'), "has format 2, but version .* reads format 1"),
        (lambda f: replace_in_config(f, '"format": 1', '"colour": 1'), "unknown key 'colour'"),
        (lambda f: replace_in_config(f, '"format": 1', '"result": 1'), '"result" is no object'),
        (lambda f: net(seed=3).save(f.with_name("other")) or swap_weights(f), "not what config.json was written for"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_in_a_sentence(damage, sentence, tmp_path):
    folder = tmp_path / "model"
    net().save(folder)
    damage(folder)
    with pytest.raises(ModelError, match=sentence) as caught:
        GraphTransformNet.load(folder)
    assert "\n" not in str(caught.value)


def test_a_model_that_is_replaced_while_it_is_loaded_is_the_new_one(tmp_path, monkeypatch):
    net(seed=1).save(tmp_path)
    new, read = net(seed=2), Path.read_bytes

    def late(file):
        if file.name == "model.safetensors":
            monkeypatch.setattr(Path, "read_bytes", read)
            new.save(tmp_path, overwrite=True)
        return read(file)

    monkeypatch.setattr(Path, "read_bytes", late)
    assert GraphTransformNet.load(tmp_path).transform(TEXTS) == new.transform(TEXTS)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_that_may_not_be_read_is_said_to_be_so(name, tmp_path, monkeypatch):
    net().save(tmp_path)
    read = Path.read_bytes

    def refuse(file):
        if file.name == name:
            raise PermissionError(13, "Permission denied", str(file))
        return read(file)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ModelError, match=f"{name} cannot be read: Permission denied"):
        GraphTransformNet.load(tmp_path)


def test_models_saved_before_there_were_versions_and_normalization_load(tmp_path):
    model = net()
    model.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    kept = {key: value for key, value in config["model"].items() if not key.endswith("normalization")}
    (tmp_path / "config.json").write_text(json.dumps({"model": kept}))
    assert GraphTransformNet.load(tmp_path).transform([*TEXTS, "e\u0301"]) == model.transform([*TEXTS, "e\u0301"])


def test_half_a_surrogate_pair_is_a_label_like_others(tmp_path):
    model = GraphTransformNet(ModelConfig(("a", "\ud800")))
    model.save(tmp_path, card="\ud800")
    assert GraphTransformNet.load(tmp_path).config == model.config


def test_what_is_copied_comes_out_in_the_form_of_the_targets():
    model = certain(("a",), input_normalization="NFC", target_normalization="NFD")
    (copied,), scores = model.transform(["e\u0301"], return_scores=True)
    assert copied == "e\u0301"
    assert model.transform(["é"], return_scores=True) == ([copied], scores)
    assert scores[0] > 0.9
    assert Ensemble([model]).transform(["é"]) == [copied]


def test_what_is_saved_again_keeps_its_card_and_its_record(tmp_path):
    net().save(tmp_path / "one", card="# Mine", training={"seed": 3}, result={"ended": "all epochs are done"})
    GraphTransformNet.load(tmp_path / "one").save(tmp_path / "two")
    for name in ("README.md", "config.json", "model.safetensors"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


@pytest.mark.parametrize("name", ["README.md", "config.json", "model.safetensors"])
def test_no_file_is_replaced_without_a_wish(tmp_path, name):
    (tmp_path / name).write_text("my own")
    with pytest.raises(ModelError, match=f"has a {name} already: name another folder, or give overwrite=True"):
        net().save(tmp_path)
    assert (tmp_path / name).read_text() == "my own"
    net().save(tmp_path, overwrite=True)
    GraphTransformNet.load(tmp_path)


def test_a_full_disk_leaves_the_old_model(tmp_path, monkeypatch):
    old = net(seed=1)
    old.save(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("grapheme_nn.model_folder.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        net(seed=2).save(tmp_path, overwrite=True)
    assert GraphTransformNet.load(tmp_path).transform(TEXTS) == old.transform(TEXTS)
    assert len(list(tmp_path.iterdir())) == 3


def test_missing_features_are_asked_for():
    model = net(features=("V",))
    with pytest.raises(ModelError, match="give features"):
        model.transform(["a"])
    with pytest.raises(ModelError, match="features for 2"):
        model.transform(["a"], features=[("V",), ("N",)])
    assert net().transform(["a"], features=[("V",)]) == net().transform(["a"])


def test_one_str_is_not_taken_for_a_list_of_texts():
    with pytest.raises(TypeError, match="put it in a list"):
        net().transform("abc")


@pytest.mark.parametrize("loss", LOSSES)
def test_a_network_that_has_diverged_has_no_loss_of_zero(loss):
    model = net(loss=loss)
    torch.nn.init.constant_(model.relabel.label.weight, torch.nan)
    if loss == "structural":  # of which no plan can be found at all
        with pytest.raises(ValueError, match="finite"):
            value_of(model, texts_to_batch(["ab"]), "a")
        return
    assert value_of(model, texts_to_batch(["ab"]), "a").isnan().all()


@pytest.mark.parametrize(
    ("x", "edges"),
    [(None, None), (torch.randn(3, 2), torch.zeros(2, 0).long()), (torch.randn(3), torch.zeros(2, 0).long())],
)
def test_a_batch_that_does_not_say_what_its_nodes_are_is_refused(x, edges):
    with pytest.raises(ValueError, match="x must be one integer per node"):
        net()(Data(x=x, edge_index=edges))


@pytest.mark.parametrize("loss", LOSSES)
def test_one_graph_needs_no_batch(loss):
    model = net(loss=loss, features=("V",))
    graph, target = diamond([3, 1, 2, 0]), diamond([0, 1, 2, 3])
    graph.feature = torch.tensor(name_identities(["V"]))
    alone, batched = model(graph), model(Batch.from_data_list([graph], follow_batch=["feature"]))
    torch.testing.assert_close(alone.label_log_prob, batched.label_log_prob)
    one, other = model.objective(alone, target), model.objective(batched, Batch.from_data_list([target]))
    torch.testing.assert_close(one.value, other.value)
    assert model.decode(alone).num_graphs == 1


@pytest.mark.parametrize(
    ("sentence", "edges", "batch"),
    [
        ("edge_index refers to node 7, but the graph has 4 nodes", [[0], [7]], [0] * 4),
        ("graphs do not mix", [[0], [3]], [0, 0, 1, 1]),
        ("has a cycle", [[0, 1], [1, 0]], [0] * 4),
        ("edge_index is missing", None, [0] * 4),
    ],
)
def test_what_is_no_graph_is_refused_in_a_sentence(sentence, edges, batch):
    edges = None if edges is None else torch.tensor(edges)
    with pytest.raises(ValueError, match=sentence):
        net()(Data(x=torch.tensor([97, 98, 99, 97]), edge_index=edges, batch=torch.tensor(batch)))


def test_features_of_nobody_are_refused_in_a_sentence():
    batch = texts_to_batch(["a", "b"], features=[("V",), ("V",)])
    del batch.feature_batch
    with pytest.raises(ValueError, match="it is not said whose features these are"):
        net(features=("V",))(batch)


@pytest.mark.parametrize("loss", LOSSES)
def test_targets_are_compared_pairwise_by_ptr_or_by_batch(loss):
    model = net(loss=loss)
    predicted, wanted = model(texts_to_batch(["ab", "c"])), texts_to_batch(["ba", "c"])
    plain = Data(x=wanted.x, edge_index=wanted.edge_index, batch=wanted.batch)
    torch.testing.assert_close(model.objective(predicted, plain).value, model.objective(predicted, wanted).value)
    with pytest.raises(ValueError, match="2 predicted graphs and 1 targets: an objective compares them pairwise"):
        model.objective(predicted, texts_to_batch(["ba"]))


@pytest.mark.parametrize(
    ("wrong", "is_what"),
    [
        (None, "NoneType None"),
        (3, "int 3"),
        (float("nan"), "float nan"),
        (b"abc", "bytes b'abc'"),
        (["a"], r"list \['a'\]"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(wrong, is_what):
    model = GraphTransformNet(ModelConfig(labels=("a",), width=8, hidden=8, layers=1))
    for use in (model.transform, lambda inputs: model.log_probabilities(inputs, ["a"] * len(inputs))):
        with pytest.raises(TypeError, match=rf"inputs\[1\] must be a str, .* but is {is_what}$"):
            use(["a", wrong])


@pytest.mark.parametrize("wrong", ["V;PST", None, [None], 3])
def test_features_that_are_no_list_of_strings_are_refused_with_their_place(wrong):
    model = GraphTransformNet(ModelConfig(labels=("a",), width=8, hidden=8, layers=1))
    with pytest.raises(TypeError, match=r"features\[1\] must be a list of strings"):
        model.transform(["a", "b"], features=[["V"], wrong])


def test_what_is_unlike_training_is_said():
    model = net(input_units=("a", "b", "c"), longest_input=4)
    found = model.unlike_training(["abc", "abßé", "abcab", "x" * 5, ""])
    assert found == [
        None,
        "unseen 'ß', 'é'",
        "5 nodes, at most 4 in training",
        "unseen 'x'; 5 nodes, at most 4 in training",
        None,
    ]
    assert model.unlike_training(["vwxyz"])[0].startswith("unseen 'v', 'w', 'x' and 2 more; ")
    assert net().unlike_training(["anything at all"]) == [None]  # nobody knows what it was trained on


def test_unlike_training_is_told_of_units_in_the_form_that_the_model_reads():
    model = net(input_units=("é", "b"), longest_input=2, input_normalization="NFC")
    assert model.unlike_training(["e\u0301b"]) == [None]
    model = net(input_units=("ab", "c"), longest_input=2, input_unit="symbol")
    assert model.unlike_training(["ab c", "a c"]) == [None, "unseen 'a'"]


def test_unseen_features_are_unlike_training():
    model = net(features=("N", "V"), input_units=("a",), longest_input=9)
    assert model.unlike_training(["a", "a"], features=[("N",), ("V", "ADJ")]) == [None, "unseen 'ADJ'"]


def test_scores_are_calibrated_as_training_has_fitted():
    plain = net().transform(["abc"], return_scores=True)[1][0]
    odds = plain / (1 - plain)
    wanted = odds**2 / (1 + odds**2)
    assert net(score_slope=2.0).transform(["abc"], return_scores=True)[1][0] == pytest.approx(wanted)
    assert Ensemble([net(score_slope=2.0)]).transform(["abc"], return_scores=True)[1][0] == pytest.approx(wanted)
    with pytest.raises(ValueError, match=r"score_slope must be above 0, but is -1\.0"):
        net(score_slope=-1.0)


def test_loading_draws_nobodys_random_numbers(tmp_path):
    net().save(tmp_path)
    torch.manual_seed(1)
    wanted = torch.rand(1)
    torch.manual_seed(1)
    GraphTransformNet.load(tmp_path)
    assert torch.rand(1) == wanted


@pytest.mark.parametrize(
    ("targets", "says"), [(["a", "b"], "each of 1 inputs, but got 2 targets"), ("a", "but got one str"), ([], "got 0")]
)
def test_there_is_a_target_for_each_input(targets, says):
    with pytest.raises(ModelError, match=says):
        net().log_probabilities(["abc"], targets)
    with pytest.raises(TypeError, match=r"targets\[0\] must be a str.*, but is NoneType None"):
        net().judge(["abc"], [None])


def test_features_of_a_model_that_knows_none_are_unlike_training():
    assert net(input_units=("a",), longest_input=1).unlike_training(["a"], features=[("V",)]) == ["unseen 'V'"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("width", 10**9, "width 1,000,000,000 is more than there are weights"),
        ("layers", 10**7, "layers 10,000,000 is more than there are weights"),
        ("longest_input", None, "longest_input must not be None"),
        ("input_units", None, "input_units must not be None"),
        ("score_slope", float("nan"), "score_slope must be a number, but is nan"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_before_anything_is_made(tmp_path, name, value, says):
    net().save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"][name] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=says):
        GraphTransformNet.load(tmp_path)


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    model = net()
    with torch.no_grad():
        model.relabel.label.bias[0] = torch.nan
    model.save(tmp_path)
    with pytest.raises(ModelError, match="are not finite numbers"):
        GraphTransformNet.load(tmp_path)


def test_a_device_that_is_not_there_and_half_a_batch_are_refused(tmp_path):
    net().save(tmp_path)
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match="cannot be put on the device cuda"):
            GraphTransformNet.load(tmp_path, device="cuda")
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1"):
        net().transform(["a"], batch_size=1.5)
