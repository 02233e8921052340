"""Both spelling losses train: numbers become roman numerals, and held-out ones are spelled right."""

import pytest
import torch
from torch import Tensor, nn

from grapheme_nn.loss import (
    PathLoss,
    Spelling,
    TransportLoss,
    best_path,
    edge_log_softmax,
    edge_score,
    greedy_path,
    most_probable_labels,
)

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
        score = edge_score(self.leave(vertices), self.arrive(slots), self.end(vertices)[:, :, 0])
        return self.label(slots), edge_log_softmax(score, slot_mask), slot_mask


def train(spell, decoders, epochs: int, seed: int = 0) -> list[float]:
    """By each decoder, the share of held-out numbers that are spelled exactly after training on the others."""
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
    right = []
    for decode in decoders:
        spelled = [[label for label in row if label] for row in decode(*predicted).tolist()]
        expected = [[label for label in row if label] for row in target[:held_out].tolist()]
        right.append(sum(map(list.__eq__, spelled, expected)) / held_out)
    return right


def without_void(labels: Tensor) -> Tensor:
    return torch.cat([torch.full_like(labels[:, :, :1], -torch.inf), labels[:, :, 1:]], 2).log_softmax(2)


def by_path(labels: Tensor, edges: Tensor, slot_mask: Tensor, target: Tensor) -> Spelling:
    return PathLoss()(without_void(labels), target, slot_mask=slot_mask, target_mask=target > 0, edge_log_prob=edges)


def by_transport(loss: TransportLoss):
    return lambda labels, edges, slot_mask, target: loss(
        labels.log_softmax(2), target, slot_mask=slot_mask, target_mask=target > 0
    )


def greedy(labels: Tensor, edges: Tensor, slot_mask: Tensor) -> Tensor:
    return greedy_path(without_void(labels), edges, slot_mask=slot_mask).labels


def best(labels: Tensor, edges: Tensor, slot_mask: Tensor) -> Tensor:
    return best_path(without_void(labels), edges, slot_mask=slot_mask).labels


def most_probable(labels: Tensor, edges: Tensor, slot_mask: Tensor) -> Tensor:
    return most_probable_labels(labels, slot_mask=slot_mask)[0]


def test_numerals_are_right():
    assert [to_roman(number) for number in (1, 4, 9, 1987, 3888)] == ["I", "IV", "IX", "MCMLXXXVII", "MMMDCCCLXXXVIII"]


def test_a_walk_through_predicted_edges_learns_to_spell():
    assert min(train(by_path, [greedy, best], epochs=12)) >= 0.98


def test_exact_transport_learns_to_spell():
    assert min(train(by_transport(TransportLoss()), [most_probable], epochs=8)) >= 0.98


def test_soft_transport_learns_to_spell():
    assert min(train(by_transport(TransportLoss(order="soft")), [most_probable], epochs=12)) >= 0.98
