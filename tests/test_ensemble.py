"""Several models vote, and their folder comes back as it was, or is refused in a sentence."""

import json
from math import exp, inf

import pytest
import torch

from grapheme_nn import Ensemble, GraphTransformNet, ModelConfig, load
from grapheme_nn.calibration import Calibration
from grapheme_nn.model_folder import ModelError, write_ensemble

TEXTS = ["graph", "a", "neuron", "élan", "☃", "ab"]


def net(seed: int = 0, **options) -> GraphTransformNet:
    torch.manual_seed(seed)
    small = {"width": 16, "hidden": 8, "heads": 2, "layers": 2, "dropout": 0.0, "buckets": 64}
    return GraphTransformNet(ModelConfig(**{"labels": tuple("abcdeghnpru"), **small, **options})).eval()


def test_an_ensemble_of_one_model_twice_is_that_model():
    model = net(parts=3)
    outputs, scores = model.transform(TEXTS, return_scores=True)
    together = Ensemble([model, model]).transform(TEXTS, return_scores=True)
    assert together[0] == outputs
    assert together[1] == pytest.approx(scores, rel=1e-3)


def test_an_ensemble_chooses_by_mean_probability():
    models = [net(seed=seed, parts=2) for seed in range(3)]
    outputs, scores = Ensemble(models).transform([*TEXTS, ""], return_scores=True)
    for text, output, score in zip(TEXTS, outputs, scores, strict=False):
        proposals = {model.transform([text])[0] for model in models}
        judged = {p: sum(exp(m.log_probabilities([text], [p])[0]) for m in models) / 3 for p in proposals}
        assert output == max(judged, key=judged.get)
        assert score == pytest.approx(judged[output], rel=1e-3)
    assert outputs[-1] == ""
    assert scores[-1] == pytest.approx(1.0)


def test_candidates_of_an_ensemble_are_judged_by_all():
    models = [net(seed=seed, parts=2) for seed in range(3)]
    for text, candidates in zip(TEXTS, Ensemble(models).candidates(TEXTS, best=3), strict=True):
        proposed = {output for model in models for output, _ in model.candidates([text], best=3)[0]}
        judged = {p: sum(exp(m.log_probabilities([text], [p])[0]) for m in models) / 3 for p in proposed}
        assert [output for output, _ in candidates] == sorted(judged, key=lambda p: -judged[p])[:3]
        assert [score for _, score in candidates] == pytest.approx([judged[p] for p, _ in candidates], rel=1e-2)
    assert Ensemble(models).candidates([]) == []


def test_what_one_model_cannot_make_may_still_win(monkeypatch):
    models = [net(seed=seed, parts=2) for seed in range(2)]
    values = iter([[-inf], [-0.1]])
    monkeypatch.setattr(GraphTransformNet, "transform", lambda self, inputs, **how: ["a"])
    monkeypatch.setattr(GraphTransformNet, "log_probabilities", lambda self, *rest, **how: next(values))
    outputs, scores = Ensemble(models).transform(["a"], return_scores=True)
    assert outputs == ["a"]
    assert scores == pytest.approx([exp(-0.1) / 2])


def test_without_scores_only_what_the_models_disagree_on_is_judged(monkeypatch):
    models = [net(seed=seed, parts=2) for seed in range(3)]
    with_scores, _ = Ensemble(models).transform(TEXTS, return_scores=True)
    asked, judge = [], GraphTransformNet.log_probabilities
    monkeypatch.setattr(
        GraphTransformNet,
        "log_probabilities",
        lambda self, inputs, *rest, **how: (asked.extend(inputs), judge(self, inputs, *rest, **how))[1],
    )
    assert Ensemble(models).transform(TEXTS) == with_scores
    disagreed = {text for text in TEXTS if len({model.transform([text])[0] for model in models}) > 1}
    assert set(asked) == disagreed != set()
    asked.clear()
    assert Ensemble([models[0]] * 2).transform(TEXTS) == models[0].transform(TEXTS)
    assert asked == []


def test_a_score_is_made_by_the_ensembles_own_calibration_or_else_by_the_mean_of_its_models():
    models = [net(score_slope=1.0, score_offset=1.0), net(score_slope=3.0, score_offset=2.0)]
    for calibration, wanted in ((None, Calibration(2.0, 1.5)), (Calibration(0.5, -1.0), Calibration(0.5, -1.0))):
        (output,), (score,) = Ensemble(models, calibration).transform(["abc"], return_scores=True)
        mean = sum(model.log_probabilities(["abc"], [output])[0] for model in models) / 2
        assert score == pytest.approx(wanted.score(mean), rel=1e-4)


def test_what_is_unlike_training_is_said_once_where_all_models_agree():
    models = [net(input_units=("a", "b")), net(input_units=("a",), features=("V",))]
    found = Ensemble(models).unlike_training(["a", "b", "c"], features=[("V",), ("V",), ("N",)])
    assert found == [None, "model 2: unseen 'b'", "model 1: unseen 'c'; model 2: unseen 'c'; unseen 'N'"]


def test_models_that_cannot_vote_are_refused():
    with pytest.raises(ValueError, match="needs at least one model"):
        Ensemble([])
    with pytest.raises(ModelError, match="model 2 spells in units of symbol, but model 1 in units of codepoint: only"):
        Ensemble([net(), net(target_unit="symbol")])


@pytest.fixture
def folder(tmp_path):
    """Of two models."""
    folders = [tmp_path / "both" / "members" / str(number) for number in (1, 2)]
    for number, member in enumerate(folders, 1):
        net(seed=number, parts=2).save(member)
    config = {
        "members": ["members/1", "members/2"],
        "weights": [json.loads((member / "config.json").read_text())["weights"] for member in folders],
        "score_slope": 0.5,
        "score_offset": 1.0,
    }
    write_ensemble(tmp_path / "both", config | {"data": {}, "result": {}}, "# Both")
    return tmp_path / "both"


def test_another_model_in_place_of_a_member_is_noticed(folder):
    net(seed=9, parts=2).save(folder / "members" / "2", overwrite=True)
    with pytest.raises(ModelError, match=r"members/2 is not the member that the ensemble was made of: copy the whole"):
        load(folder)


def test_an_ensemble_of_anything_else_is_refused(folder):
    for others in (load(folder), [load(folder)], ["members/1"]):
        with pytest.raises(TypeError, match="an ensemble is made of a list of GraphTransformNet"):
            Ensemble(others)


def test_an_ensemble_is_loaded_from_its_folder_and_a_model_from_its_own(folder):
    found = load(folder)
    assert isinstance(found, Ensemble)
    assert found.calibration == Calibration(0.5, 1.0)
    models = [GraphTransformNet.load(folder / "members" / name) for name in "12"]
    wanted = Ensemble(models, Calibration(0.5, 1.0))
    assert found.transform(TEXTS, return_scores=True) == wanted.transform(TEXTS, return_scores=True)
    one = load(folder / "members" / "1")
    assert isinstance(one, GraphTransformNet)
    assert one.transform(TEXTS) == models[0].transform(TEXTS)


def test_what_is_loaded_as_the_other_kind_is_told_the_way_out(folder):
    with pytest.raises(ModelError, match=r"both holds 2 models that vote: load it by grapheme_nn\.load"):
        GraphTransformNet.load(folder)
    with pytest.raises(ModelError, match=r"1 holds one model, not several that vote: load it by grapheme_nn\.load"):
        Ensemble.load(folder / "members" / "1")


def change(folder, **values):
    config = json.loads((folder / "config.json").read_text()) | values
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda f: change(f, members=["../both/members/1"]), "a member must be members/1 or the like, but is '../both"),
        (lambda f: change(f, members=[str(f / "members" / "1")]), "a member must be members/1 or the like"),
        (lambda f: change(f, members=["members/1", "members/../members/2"]), "a member must be members/1 or the like"),
        (lambda f: change(f, members=[1]), "a member must be members/1 or the like, but is 1"),
        (lambda f: change(f, members=[]), '"members" is no list of folders'),
        (lambda f: change(f, members="members/1"), '"members" is no list of folders'),
        (lambda f: change(f, members=["members/1", "members/3"]), "3 is not a model folder: there is no such folder"),
        (lambda f: change(f, members=["members/1"] * 2, model={}), "has the unknown key 'model'"),
        (lambda f: change(f, score_slope=-1.0), "score_slope is no number above 0, but -1.0"),
        (lambda f: change(f, score_slope=None), "score_slope is no number above 0, but None"),
        (lambda f: change(f, score_offset=float("nan")), "score_offset is no number, but nan"),
        (lambda f: change(f, format=9), "has format 9"),
        (lambda f: change(f, result=[]), '"result" is no object'),
        (lambda f: (f / "config.json").unlink(), "it has no config.json"),
        (lambda f: (f / "members" / "2" / "model.safetensors").write_bytes(b"\x80\x04 pickle"), "is damaged"),
        (lambda f: (f / "members" / "2" / "config.json").unlink(), "2 is not a model folder: it has no config.json"),
        (lambda f: change(f, weights=["00"]), "has not the SHA-256 of each member"),
        (lambda f: change(f, weights=["00", "00"]), "1 is not the member that the ensemble was made of"),
    ],
)
def test_a_damaged_ensemble_is_refused_in_a_sentence(folder, harm, says):
    harm(folder)
    with pytest.raises(ModelError) as error:
        load(folder)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
