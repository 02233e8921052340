"""Units and normalization forms are chosen by looking at the texts, and where nothing is to be seen nothing is changed."""

from dataclasses import replace
from random import Random
from unicodedata import normalize

import pytest

from grapheme_nn import Graph
from grapheme_nn.config import TrainConfig
from grapheme_nn.data import Pair, generate
from grapheme_nn.text_choice import choose_forms, choose_units, in_forms
from grapheme_nn.trainer import Trainer

RANDOM = Random(0)


def drawn(parts, between=" ", count=200):
    return [between.join(RANDOM.choices(parts, k=RANDOM.randint(2, 7))) for _ in range(count)]


PHONES = ["p", "b", "t", "d", "k", "ɡ", "tʰ", "t̪", "t͡ʃ", "d͡ʒʲ", "ʃ", "a", "aː", "ɛ", "o̞ː", "ɔ̃"]
ARPABET = ["K", "AE1", "T", "D", "AO0", "G", "S", "IH0", "NG", "HH", "UW1", "ER2"]
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "was",
    "seen",
    "by",
    "an",
    "old",
    "dog",
    "in",
    "our",
    "big",
    "green",
    "house",
]
DIGITS = [f"{number:02}" for number in range(100)]
MORSE = [".-", "-...", "-.-.", "-..", ".", "..-.", "--.", "....", "..", ".---"]
HANGUL = "가나다라마바사글한국말빛"


@pytest.mark.parametrize(
    ("texts", "unit"),
    [
        (drawn(PHONES), "symbol"),
        (drawn(ARPABET), "symbol"),
        (["", *drawn(PHONES)], "symbol"),
        ([" ".join(word) for word in WORDS * 9], "symbol"),
        (drawn(WORDS), "codepoint"),  # sentences, even of few words
        (drawn(["duruyor", "olacak", "mı", "mısın"]), "codepoint"),
        (drawn(DIGITS), "codepoint"),  # telephone numbers
        (drawn(["x", "+", "12", "7", "*"]), "codepoint"),
        (drawn(MORSE), "codepoint"),
        (drawn([chr(number) for number in range(0x4E00, 0x5000)]), "codepoint"),  # Chinese, a word at a time
        (drawn([chr(number) for number in range(0x4E00, 0x4F00)], count=1000), "codepoint"),  # and again and again
        (drawn(["pˑ", "t˞", "kˠ˞", "a˥˩", "o˧˥", "t͡s˞ʰ"]), "symbol"),  # tones and rhoticity are marks
        (drawn(PHONES, "  "), "codepoint"),  # between two spaces there is nothing
        (drawn("abc", ""), "codepoint"),
        (["A", "B"] * 50, "codepoint"),  # names of classes
        ([""], "codepoint"),
        (drawn(HANGUL, ""), "decomposed"),
        ([f"{text} ok" for text in drawn(HANGUL, "")], "decomposed"),
        ([f"{text} of 가" for text in drawn(WORDS)], "codepoint"),
    ],
)
def test_the_unit_that_texts_ask_for(texts, unit):
    others = ["abc"] * len(texts)
    for pairs, name in ((zip(texts, others, strict=True), "input"), (zip(others, texts, strict=True), "target")):
        config, notes = choose_units(TrainConfig(), [Pair(*pair) for pair in pairs])
        assert getattr(config, f"{name}_unit") == unit
        assert [note.endswith(f": {name} unit {unit}") for note in notes] == [True] * (unit != "codepoint")


def test_built_in_tasks_are_of_code_points_or_graphs():
    for task in ("dates", "numbers", "roman", "arithmetic", "stutter", "parse", "unparse", "derivative"):
        config, notes = choose_units(TrainConfig(), generate(task, 200, seed=1))
        assert {config.input_unit, config.target_unit} <= {"codepoint", "graph"}
        assert notes == []


def test_a_unit_that_is_given_is_left():
    config, notes = choose_units(TrainConfig(target_unit="cluster"), [Pair("a", text) for text in drawn(PHONES)])
    assert (config.target_unit, notes) == ("cluster", [])


def test_hangul_can_be_copied_where_it_is_decomposed():
    pairs = [Pair(text, f"the word {text} of some language") for text in drawn(HANGUL, "")]
    config, _ = choose_units(TrainConfig(), pairs)
    assert (config.input_unit, config.target_unit) == ("decomposed", "decomposed")


def test_training_without_units_is_training_with_those_that_are_seen():
    pairs = [Pair("".join(RANDOM.choices(HANGUL, k=3)), text) for text in drawn(PHONES, count=60)]
    given = TrainConfig(input_unit="decomposed", target_unit="symbol")
    found, wanted = (Trainer(pairs, [], replace(config, epochs=1)) for config in (TrainConfig(), given))
    assert found.config == wanted.config
    assert found.network.config == wanted.network.config
    assert found.notes == [
        "inputs are Hangul, whose syllables are made of jamo: input unit decomposed",
        "targets are symbols between spaces: target unit symbol",
    ]


NFC, NFD, ASCII = "é", "e\u0301", "e"


@pytest.mark.parametrize(
    ("texts", "form", "says"),
    [
        ((ASCII,), "NFC", ""),
        ((ASCII, NFC), "NFC", ""),
        ((ASCII, NFD), "NFD", "in NFD: input normalization NFD"),
        ((NFC, NFD), "NFC", "in no common normalization form: input normalization NFC"),
        (("\N{OHM SIGN}",), "NFC", "in no common normalization form: input normalization NFC"),
    ],
)
def test_the_normalization_form_is_that_of_all_texts_and_a_mixture_is_told_of(texts, form, says):
    for sides in (texts, [Graph((text,), ()) for text in texts]):
        config, notes = choose_forms(TrainConfig(), [Pair(side, "a") for side in sides])
        assert (config.input_normalization, config.target_normalization) == (form, "NFC")
        assert notes == ([f"inputs are {says}"] if says else [])


def test_each_side_has_a_form_of_its_own_and_none_leaves_texts_alone():
    pairs = [Pair(NFC, NFD), Pair("\u00e0", "a\u0300")]
    config, _ = choose_forms(TrainConfig(), pairs)
    assert (config.input_normalization, config.target_normalization) == ("NFC", "NFD")
    swapped = [Pair(pair.target, Graph((pair.input,), ()), ("V",)) for pair in pairs]
    assert in_forms(config, swapped) == [
        Pair(normalize("NFC", pair.target), Graph((normalize("NFD", pair.input),), ()), ("V",)) for pair in pairs
    ]
    config, notes = choose_forms(TrainConfig(input_normalization="none", target_normalization="none"), [Pair(NFC, NFD)])
    assert in_forms(config, swapped) == swapped
    assert notes == []
