"""The network runs on any DAG, spells what it can copy, and comes back from its folder as it went in."""

import json
from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Batch, Data

from grapheme_nn import GraphTransformNet, is_acyclic
from grapheme_nn.graph import identities
from grapheme_nn.inputs import batch_to_inputs, inputs_to_batch, pad, texts_to_inputs
from grapheme_nn.loss.ctc import ctc_value, merge_repeats
from grapheme_nn.model import LOSSES, ModelConfig, ModelError, transform_ensemble
from grapheme_nn.nn.structure import Structure
from grapheme_nn.spell import Targets

TEXTS = ["graph", "a", "neuron", "élan", "☃", "ab"]
FEATURES = [("V", "PST"), (), ("N",), ("N", "PL", "DAT"), ("V",), ("X",)]


def net(seed: int = 0, **options) -> GraphTransformNet:
    torch.manual_seed(seed)
    small = {"width": 16, "hidden": 8, "heads": 2, "layers": 2, "dropout": 0.0, "buckets": 64}
    return GraphTransformNet(ModelConfig(**{"labels": tuple("abcdeghnpru"), **small, **options})).eval()


def targets(*texts: str) -> Targets:
    return Targets(*pad(identities(texts, "codepoint")))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("merge", [False, True])
def test_on_chains_shifts_give_what_edges_give(loss, merge):
    model = net(loss=loss, merge=merge, features=("V", "N")).double()
    inputs = texts_to_inputs(TEXTS, FEATURES, "codepoint")
    assert inputs.structure.edge_index is None
    edges = replace(inputs, structure=Structure(inputs.structure.mask, inputs.structure.edges()))
    there = inputs.structure.mask.repeat_interleave(2, 1)
    by_shifts, by_edges = model(inputs), model(edges)
    torch.testing.assert_close(by_shifts.label_log_prob[there], by_edges.label_log_prob[there])
    if loss == "path":
        torch.testing.assert_close(by_shifts.edge_log_prob[:, 1:][there], by_edges.edge_log_prob[:, 1:][there])


def test_texts_and_their_batch_are_the_same_input():
    direct = texts_to_inputs(TEXTS, FEATURES, "codepoint")
    batch = inputs_to_batch(TEXTS, FEATURES)
    assert is_acyclic(batch.edge_index, batch.num_nodes)
    through_graphs = batch_to_inputs(batch)
    assert through_graphs.structure.edge_index is None
    for name in ("unit", "feature", "feature_mask"):
        assert torch.equal(getattr(direct, name), getattr(through_graphs, name))
    assert torch.equal(direct.structure.mask, through_graphs.structure.mask)


def diamond(order: list[int]) -> Data:
    """0 -> 1 -> 3, 0 -> 2 -> 3, its nodes numbered by `order`."""
    number = torch.tensor(order)
    x = torch.zeros(4, dtype=torch.long)
    x[number] = torch.tensor([97, 98, 99, 100])
    return Data(x=x, edge_index=number[torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("merge", [False, True])
def test_any_dag_goes_through_forward_and_backward(loss, merge):
    model = net(loss=loss, merge=merge).train()
    batch = Batch.from_data_list(
        [
            diamond([0, 1, 2, 3]),
            diamond([3, 1, 2, 0]),
            Data(x=torch.tensor([5]), edge_index=torch.zeros(2, 0, dtype=torch.long)),
        ]
    )
    prediction = model(batch)
    assert prediction.label_log_prob.shape == (3, 8, 13)
    value = model.loss(prediction, targets("abcd", "ba", "a"))
    value.sum().backward()
    assert value.isfinite().all()
    # The first slot of a graph is made from its source, wherever that has its number.
    history = prediction.history
    assert [history.contributors(slot)[0].tolist() for slot in (0, 8, 16)] == [[0], [7], [8]]
    graph = prediction.graph()
    assert graph.num_nodes == 18
    assert is_acyclic(graph.edge_index, 18)


def test_numbering_of_a_dag_does_not_matter():
    model = net().double()
    one, other = (
        model(Batch.from_data_list([diamond(order)])).label_log_prob for order in ([0, 1, 2, 3], [3, 1, 2, 0])
    )
    torch.testing.assert_close(one, other)


def test_history_leads_from_nodes_to_slots_past_the_features():
    history = net(features=("V",), parts=3)(inputs_to_batch(["ab", "c"], [("V", "PST"), ("V",)])).history
    assert (history.num_sources, history.num_targets) == (6, 9)
    assert [history.contributors(slot)[0].item() for slot in range(9)] == [2, 2, 2, 3, 3, 3, 5, 5, 5]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("merge", [False, True])
def test_gradient_reaches_every_parameter(loss, merge):
    model = net(loss=loss, merge=merge, features=("V", "N"), parts=2).double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    inputs = texts_to_inputs(TEXTS, FEATURES, "codepoint")
    model.loss(model(inputs), targets("graphs", "a", "neuro", "éé", "☃", "ba")).sum().backward()
    dead = [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert dead == []
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_the_whole_network_match_differences(loss):
    model = net(loss=loss, width=8, hidden=4, layers=1, buckets=4).double()
    inputs, wanted = texts_to_inputs(["abé", "☃"], None, "codepoint"), targets("aaé", "c")

    def value(table):
        prediction = torch.func.functional_call(model, {"embedding.table": table}, (inputs,))
        return model.loss(prediction, wanted)

    assert torch.autograd.gradcheck(value, model.embedding.table.detach().requires_grad_())


@pytest.mark.parametrize("loss", LOSSES)
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
    monkeypatch.setattr("grapheme_nn.model.MOST_LOOKS", 900)
    model.register_forward_hook(lambda module, arguments, result: seen.append(result.slot_mask.size(0)))
    assert model.transform(texts) == together
    assert seen == [2, 1, 1]


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
    prediction = net(loss="transport")(texts_to_inputs(["aé"], None, "codepoint"))
    raw, merged = prediction.label_log_prob.exp(), prediction.merged.exp()
    torch.testing.assert_close(merged.sum(2), torch.ones(1, 4))
    torch.testing.assert_close(merged[0, 0, 2], raw[0, 0, 1] + raw[0, 0, 2])  # a is the first label
    torch.testing.assert_close(merged[0, 2], raw[0, 2])  # é is none


@pytest.mark.parametrize("unit", ["codepoint", "cluster", "symbol", "decomposed"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_network_that_only_copies_returns_units_it_has_never_seen(unit, loss):
    model = net(loss=loss, parts=1, labels=("a",), input_unit=unit, target_unit=unit)
    with torch.no_grad():
        model.label.weight.zero_()
        model.label.bias.copy_(torch.tensor([-9.0, 9.0, -9.0]))
        if loss == "path":
            model.end.weight.zero_()
            model.end.bias.fill_(-9)
            model.leave.weight.zero_()
            model.leave.bias.zero_()
            # All steps are alike, so the walk of most slots is not the best one; make only the next slot reachable.
            model.config = replace(model.config, reach=1)
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
    value = ctc_value(label, log_prob[:, :, 0], torch.tensor([[0, 0, 2], [0, 1, 1]]), slots, length)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v.sum(), score, retain_graph=True)[0] for v in (value, expected)))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_model_comes_back_from_its_folder_as_it_went_in(loss, tmp_path):
    model = net(loss=loss, features=("V",), merge=True, target_unit="symbol")
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
        (lambda f: change_config(f, labels=[1, 2]), "labels must be strings"),
        (lambda f: change_config(f, dropout="x"), "dropout"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_in_a_sentence(damage, sentence, tmp_path):
    folder = tmp_path / "model"
    net().save(folder)
    damage(folder)
    with pytest.raises(ModelError, match=sentence) as caught:
        GraphTransformNet.load(folder)
    assert "\n" not in str(caught.value)


def test_a_full_disk_leaves_the_old_model(tmp_path, monkeypatch):
    old = net(seed=1)
    old.save(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("grapheme_nn.folder._flush", full)
    with pytest.raises(OSError, match="No space left"):
        net(seed=2).save(tmp_path)
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


def test_an_ensemble_of_one_model_twice_is_that_model():
    model = net(parts=3)
    outputs, scores = model.transform(TEXTS, return_scores=True)
    together = transform_ensemble([model, model], TEXTS)
    assert together[0] == outputs
    assert together[1] == pytest.approx(scores, rel=1e-3)


def test_an_ensemble_chooses_by_mean_log_probability():
    models = [net(seed=seed, parts=2) for seed in range(3)]
    outputs, scores = transform_ensemble(models, [*TEXTS, ""])
    for text, output, score in zip(TEXTS, outputs, scores, strict=False):
        proposals = {model.transform([text])[0] for model in models}
        judged = {p: sum(m.log_probabilities([text], [p])[0] for m in models) / 3 for p in proposals}
        assert output == max(judged, key=judged.get)
        assert score == pytest.approx(torch.tensor(judged[output]).exp().item(), rel=1e-3)
    assert (outputs[-1], scores[-1]) == ("", 1.0)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_network_that_has_diverged_has_no_loss_of_zero(loss):
    model = net(loss=loss)
    torch.nn.init.constant_(model.label.weight, torch.nan)
    value = model.loss(model(texts_to_inputs(["ab"], None, "codepoint")), targets("a"))
    assert value.isnan().all()
