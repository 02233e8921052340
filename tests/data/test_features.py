import pytest
from hypothesis import given
from hypothesis import strategies as st

from grapheme_nn.data import split_features


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("V;PST;3;SG", ("V", "PST", "3", "SG")),
        ("V;V.PTCP;PRS", ("V", "V.PTCP", "PRS")),
        ("V;PRS;NOM(3,SG)", ("V", "PRS", "NOM", "NOM:3", "NOM:SG")),
        ("N;ABL(PL;PSS(2,PL))", ("N", "ABL", "ABL:PL", "PSS", "PSS:2", "PSS:PL")),
        ("ABL(PSS(2);PL);X", ("ABL", "PSS", "PSS:2", "ABL:PL", "X")),
        (" V ; PST ;", ("V", "PST")),
        ("", ()),
        ("(A;B)", ("A", "B")),
    ],
)
def test_features_are_cut_into_small_units(text, units):
    assert split_features(text) == units


def test_whose_plural_it_is_can_be_told_without_the_order():
    assert set(split_features("N;ABL(SG;PSS(1,PL))")) != set(split_features("N;ABL(PL;PSS(1,SG))"))


@pytest.mark.parametrize("text", ["a:(;b", "a)(;b", "NOM(3;b"])
def test_brackets_that_do_not_match_are_ordinary_characters(text):
    assert split_features(text) == tuple(text.split(";"))


@given(st.text(alphabet="AB;,() "))
def test_units_joined_again_are_cut_at_the_same_places_where_brackets_match(text):
    units = split_features(text)
    assert "" not in units
    if not any(mark in unit for unit in units for mark in "(),"):
        assert split_features(";".join(units)) == units
