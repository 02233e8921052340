"""Objectives train: numbers become roman numerals, and held-out ones are spelled right."""

import pytest
import torch
from torch import Tensor, nn

from grapheme_nn.nn.pointer import band, band_log_softmax
from grapheme_nn.objective.base import without_voids
from grapheme_nn.objective.monotone import monotone_alignment
from grapheme_nn.objective.path import best_path, path_alignment
from grapheme_nn.objective.structural import Structural

SYMBOLS = " IVXLCDM"
ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"))
ROMAN += ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
CHILDREN = 4


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors are fastest on one thread, and a busy machine does not make it wait for another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def to_roman(number: int) -> str:
    text = ""
    for value, numeral in ROMAN:
        count, number = divmod(number, value)
        text += numeral * count
    return text


def pad(rows: list[list[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [0] * (width - len(row)) for row in rows])


class Speller(nn.Module):
    """Digits, a recurrence in both directions, four children of each digit, and for each a label and edges."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, channels, padding_idx=0)
        self.recur = nn.LSTM(channels, channels, bidirectional=True, batch_first=True)
        self.split = nn.Linear(2 * channels, CHILDREN * channels)
        self.label = nn.Linear(channels, len(SYMBOLS))
        self.begin = nn.Parameter(torch.zeros(channels))
        self.leave, self.arrive, self.end = nn.Linear(channels, 32), nn.Linear(channels, 32), nn.Linear(channels, 1)

    def forward(self, digits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mask = digits > 0
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(digits), mask.sum(1), batch_first=True, enforce_sorted=False
        )
        hidden = nn.utils.rnn.pad_packed_sequence(self.recur(packed)[0], batch_first=True)[0]
        slots = self.split(hidden).relu().view(digits.size(0), -1, self.begin.numel())
        slot_mask = mask.repeat_interleave(CHILDREN, 1)
        vertices = torch.cat([self.begin.expand(digits.size(0), 1, -1), slots], 1)
        score = band(self.leave(vertices), self.arrive(slots), self.end(vertices)[:, :, 0], slots.size(1))
        return self.label(slots), band_log_softmax(score, slot_mask), slot_mask


def train(spell, decode, epochs: int, seed: int = 0) -> float:
    """The share of held-out numbers that are spelled exactly after training on the others."""
    generator = torch.Generator().manual_seed(seed)
    numbers = (torch.randperm(3999, generator=generator) + 1).tolist()
    digits = pad([[int(c) + 1 for c in str(number)] for number in numbers])
    target = pad([[SYMBOLS.index(c) for c in to_roman(number)] for number in numbers])
    held_out = 800
    torch.manual_seed(seed)
    model = Speller()
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    batches = (len(numbers) - held_out) // 64
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=epochs * batches, pct_start=0.2)
    for _ in range(epochs):
        for batch in (torch.randperm(len(numbers) - held_out, generator=generator) + held_out).split(64)[:batches]:
            optimiser.zero_grad()
            spell(*model(digits[batch]), target[batch]).mean.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        predicted = model(digits[:held_out])
    spelled = [[label for label in row if label] for row in decode(*predicted).tolist()]
    expected = [[label for label in row if label] for row in target[:held_out].tolist()]
    return sum(map(list.__eq__, spelled, expected)) / held_out


def of_targets(log_prob: Tensor, slot_mask: Tensor, target: Tensor) -> Tensor:
    """The log-probability that slot i spells target j, [B, s, m], -inf in padding."""
    label = log_prob.gather(2, target[:, None, :].expand(-1, log_prob.size(1), -1))
    return torch.where(slot_mask[:, :, None] & (target > 0)[:, None, :], label, -torch.inf)


def without_void(labels: Tensor) -> Tensor:
    return torch.cat([torch.full_like(labels[:, :, :1], -torch.inf), labels[:, :, 1:]], 2).log_softmax(2)


def by_path(labels: Tensor, edges: Tensor, slot_mask: Tensor, target: Tensor):
    return path_alignment(of_targets(without_void(labels), slot_mask, target), edges, (target > 0).sum(1))


def by_monotone(labels: Tensor, edges: Tensor, slot_mask: Tensor, target: Tensor):
    log_prob = labels.log_softmax(2)
    void = torch.where(slot_mask, log_prob[:, :, 0], 0)
    return monotone_alignment(of_targets(log_prob, slot_mask, target), void, (target > 0).sum(1))


def best(labels: Tensor, edges: Tensor, slot_mask: Tensor) -> Tensor:
    return best_path(without_void(labels), edges).label


def most_probable(labels: Tensor, edges: Tensor, slot_mask: Tensor) -> Tensor:
    return without_voids(torch.where(slot_mask, labels.argmax(2), 0)).label


def test_numerals_are_right():
    assert [to_roman(number) for number in (1, 4, 9, 1987, 3888)] == ["I", "IV", "IX", "MCMLXXXVII", "MMMDCCCLXXXVIII"]


def test_a_walk_through_predicted_edges_learns_to_spell():
    assert train(by_path, best, epochs=12) >= 0.98


def test_monotone_alignment_learns_to_spell():
    assert train(by_monotone, most_probable, epochs=8) >= 0.98


def test_the_structural_objective_learns_to_spell(predict, wanted):
    def by_structure(labels: Tensor, edges: Tensor, slot_mask: Tensor, target: Tensor):
        # The column of copying, which these slots cannot.
        log_prob = nn.functional.pad(labels, (1, 0), value=-1e6)
        log_prob = torch.cat([log_prob[:, :, 1:2], log_prob[:, :, :1], log_prob[:, :, 2:]], 2).log_softmax(2)
        rows = [[label + 1 for label in row if label] for row in target.tolist()]
        return Structural()(predict(log_prob, slot_mask.sum(1).tolist()), wanted(rows))

    assert train(by_structure, most_probable, epochs=6) >= 0.98
