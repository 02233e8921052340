"""Any unit has an embedding, and different units have different ones."""

import pytest
import torch

from grapheme_nn import texts_to_batch
from grapheme_nn.graph import name_identities
from grapheme_nn.nn.embedding import HashEmbedding


def test_every_unit_has_an_embedding_of_the_asked_size():
    units = texts_to_batch(["a☃é", "t͡ʃ ʃː"], "symbol").x
    extreme = torch.tensor([0, -1, 2**63 - 1, -(2**63)])
    embedding = HashEmbedding(32)
    assert embedding(torch.cat([units, extreme])).shape == (units.numel() + 4, 32)
    assert embedding(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 32)


def test_no_two_of_all_basic_characters_are_the_same_to_the_network():
    rows = HashEmbedding(32, buckets=1024, hashes=4).rows(torch.arange(0x10000))
    assert len(rows.unique(dim=0)) == 0x10000


@pytest.mark.parametrize("units", [torch.arange(4096), -torch.arange(4096), torch.arange(4096) << 20])
def test_hashes_fill_their_buckets_evenly(units):
    embedding = HashEmbedding(32, buckets=64, hashes=4)
    count = torch.stack(
        [
            torch.bincount(column, minlength=256)[i * 64 : i * 64 + 64]
            for i, column in enumerate(embedding.rows(units).T)
        ]
    )
    assert count.sum() == 4 * 4096
    assert count.min() > 20  # 64 expected
    assert count.max() < 130


def test_a_unit_is_the_same_alone_and_among_others():
    embedding = HashEmbedding(16)
    units = torch.tensor([97, 98, -5])
    assert torch.equal(embedding(units)[1], embedding(torch.tensor(98)))


def test_gradient_reaches_the_rows_that_were_used_and_no_other():
    embedding = HashEmbedding(8, buckets=16, hashes=2)
    units = torch.tensor([97, 98])
    embedding(units).sum().backward()
    used = embedding.rows(units).unique()
    assert embedding.table.grad.abs().sum(1).nonzero()[:, 0].tolist() == used.tolist()


def test_names_have_identities_that_never_change():
    assert name_identities(["V", "PST"]) == name_identities(["V", "PST"])
    assert name_identities(["V"]) == [8433044237230507973]
    assert len(set(name_identities([f"F{i}" for i in range(1000)]))) == 1000


@pytest.mark.parametrize(
    "options", [{"channels": 10}, {"channels": 0}, {"channels": 8, "hashes": 9}, {"channels": 8, "buckets": 0}]
)
def test_impossible_sizes_are_refused(options):
    with pytest.raises(ValueError, match="must"):
        HashEmbedding(**options)
