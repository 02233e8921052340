"""The most probable outputs are those of brute force, and a network's candidates have the probabilities it gives them."""

from itertools import product
from math import exp, log

import pytest
import torch

from grapheme_nn import GraphTransformNet, ModelConfig
from grapheme_nn.model import ModelError
from grapheme_nn.objective.search import Walks, best_outputs


def net(seed=0, **options):
    torch.manual_seed(seed)
    small = {"width": 16, "hidden": 8, "heads": 2, "layers": 1, "dropout": 0.0, "buckets": 64}
    return GraphTransformNet(ModelConfig(**{"labels": ("a", "b"), "parts": 1, **small, **options})).eval()


def random_walks(batch, slots, labels, seed=0):
    """Moves by chance to any later slot, or to the end."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.rand(batch, slots, labels, generator=generator).softmax(2)
    score = 3 * torch.randn(batch, slots + 1, slots + 1, generator=generator)
    later = torch.ones(slots + 1, slots + 1).triu(1)[:, 1:].bool()
    score[:, :, :-1] = torch.where(later, score[:, :, :-1], -torch.inf)
    move = score.softmax(2)
    return Walks(label, move[:, :, :-1], move[:, :, -1])


def by_hand(walks, item):
    """The probability of every output, by visiting every subset of slots."""
    (slots, labels), found = walks.label[item].shape, {}
    for visited in product([False, True], repeat=slots):
        chosen, vertex, p = [slot for slot in range(slots) if visited[slot]], 0, 1.0
        for slot in chosen:
            p, vertex = p * float(walks.move[item, vertex, slot]), slot + 1
        p *= float(walks.end[item, vertex])
        for output in product(range(labels), repeat=len(chosen)):
            spelled = [float(walks.label[item, slot, unit]) for slot, unit in zip(chosen, output, strict=True)]
            found[output] = found.get(output, 0.0) + p * torch.tensor([1.0, *spelled]).double().prod().item()
    return sorted(found.items(), key=lambda entry: -entry[1])


@pytest.mark.parametrize("seed", range(3))
def test_the_best_outputs_are_those_of_brute_force(seed):
    walks = random_walks(4, 4, 3, seed)
    for item, outputs in enumerate(best_outputs(walks, 5)):
        wanted = by_hand(walks, item)
        assert sum(p for _, p in wanted) == pytest.approx(1.0)
        assert [tuple(output) for output, _ in outputs] == [output for output, _ in wanted[:5]]
        assert [exp(value) for _, value in outputs] == pytest.approx([p for _, p in wanted[:5]], rel=1e-5)


def test_what_cannot_be_spelled_is_no_output():
    walks = Walks(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[1.0], [0.0]]]), torch.tensor([[0.0, 1.0]]))
    assert best_outputs(walks, 3) == [[([0], 0.0)]]


@pytest.mark.parametrize("loss", ["monotone", "path"])
@pytest.mark.parametrize("morphs", [("split",), ("merge", "lift", "split")])
def test_candidates_have_the_probability_that_the_network_gives_them(loss, morphs):
    model = net(loss=loss, morphs=morphs, parts=2)
    texts = ["ab", "a", "abba", "", "x☃x"]
    for text, candidates in zip(texts, model.candidates(texts, best=4), strict=True):
        outputs, scores = zip(*candidates, strict=True)
        assert len(set(outputs)) == len(outputs)
        assert list(scores) == sorted(scores, reverse=True)
        assert sum(scores) <= 1 + 1e-6
        judged = model.log_probabilities([text] * len(outputs), outputs)
        assert [log(score) for score in scores] == pytest.approx(judged, abs=1e-4)


@pytest.mark.parametrize("loss", ["monotone", "path"])
def test_no_text_is_more_probable_than_the_first_candidate(loss):
    model = net(loss=loss, seed=3)
    (candidates,) = model.candidates(["abab"], best=3)
    every = ["".join(units) for length in range(5) for units in product("ab", repeat=length)]
    judged = model.log_probabilities(["abab"] * len(every), every)
    order = sorted(zip(judged, every, strict=True), reverse=True)
    assert [text for text, _ in candidates] == [text for _, text in order[:3]]


@pytest.mark.parametrize("loss", ["monotone", "path"])
def test_units_that_can_only_be_copied_are_told_apart(loss):
    model = net(loss=loss)
    with torch.no_grad():
        model.relabel.label.bias[1] = 20.0  # everything is copied
    (candidates,) = model.candidates(["☃a☂"], best=8)
    assert {output.count("☃") for output, _ in candidates} <= {0, 1}
    judged = model.log_probabilities(["☃a☂"] * len(candidates), [output for output, _ in candidates])
    assert [log(score) for _, score in candidates] == pytest.approx(judged, abs=1e-3)


def test_candidates_of_long_and_short_inputs_do_not_depend_on_each_other():
    model = net(parts=2)
    together = model.candidates(["ab", "abababab", "b"], best=3)
    for text, candidates in zip(["ab", "abababab", "b"], together, strict=True):
        ((alone),) = model.candidates([text], best=3)
        assert [output for output, _ in alone] == [output for output, _ in candidates]
        assert [score for _, score in alone] == pytest.approx([score for _, score in candidates], rel=1e-4)


def test_what_has_no_candidates_is_refused():
    with pytest.raises(ModelError, match="the loss ctc has no candidates: train with monotone or path"):
        net(loss="ctc").candidates(["ab"])
    with pytest.raises(ValueError, match="best must be a whole number of at least 1, but is 0"):
        net().candidates(["ab"], best=0)
    with pytest.raises(ModelError, match="only texts have candidates"):
        net(target_unit="graph", loss="structural", target_edge_types=(0,)).candidates(["ab"])
    with pytest.raises(ValueError, match="best must be a whole number of at least 1, but is True"):
        net().candidates(["ab"], best=True)
    with pytest.raises(
        ModelError, match=r"inputs\[1\] has more than 5,792 characters: cut it into pieces for candidates"
    ):
        net(heads=0).candidates(["ab", "a" * 5793])
