"""New inputs are made of old ones, joined where both look the same."""

from random import Random

from grapheme_nn.data import Pair
from grapheme_nn.splice import splice


def pairs(*inputs, features=()):
    return [Pair(text, text.upper(), features) for text in inputs]


def test_the_beginning_of_one_is_joined_to_the_end_of_another_where_both_have_the_same_characters():
    found = splice(pairs("walking", "talked"), 9, seed=0)
    assert {pair.input for pair in found} == {"walked", "talking"}
    assert all(pair.target == "" for pair in found)


def test_one_character_in_common_does_where_no_two_are():
    assert {pair.input for pair in splice(pairs("xay", "paq"), 9, seed=0)} == {"xaq", "pay"}
    assert splice(pairs("abc", "xyz"), 9, seed=0) == []
    assert splice(pairs("a", "b"), 9, seed=0) == []
    assert splice([], 9, seed=0) == []


def test_every_new_input_is_a_beginning_and_an_end_with_the_same_before_the_joint_and_none_is_there_already():
    random = Random(0)
    words = ["".join(random.choices("abcd", k=random.randint(1, 6))) for _ in range(200)]
    known = pairs("abcd", "dcba")
    found = [pair.input for pair in splice(pairs(*words), 300, seed=1, known=known)]
    assert len(found) == len(set(found)) == 300
    assert not set(found) & {*words, "abcd", "dcba"}
    tails = {(word[at - 1], word[at:]) for word in words for at in range(1, len(word))}
    heads = {word[:at] for word in words for at in range(1, len(word))}
    for text in found:
        joints = range(1, len(text))
        assert any(text[:at] in heads and (text[at - 1], text[at:]) in tails for at in joints)


def test_the_same_seed_gives_the_same_inputs():
    some = pairs("walking", "talked", "baked", "making", "waking")
    assert splice(some, 5, seed=3) == splice(some, 5, seed=3) != splice(some, 5, seed=4)


def test_both_have_the_same_features_and_the_new_input_has_them():
    some = pairs("walking", "talked", features=("V",)) + pairs("balk", "chalky", features=("N",))
    found = splice(some, 99, seed=0)
    assert {(pair.input, pair.features) for pair in found} == {
        ("walked", ("V",)),
        ("talking", ("V",)),
        ("balky", ("N",)),
        ("chalk", ("N",)),
    }


def test_symbols_are_joined_as_symbols():
    found = splice(pairs("AA1 K T", "B AA1 S IH"), 9, seed=0, unit="symbol")
    assert {pair.input for pair in found} == {"AA1 S IH", "B AA1 K T"}
