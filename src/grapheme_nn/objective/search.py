"""The most probable outputs: a search over prefixes, each summed over all the ways in which slots can spell it."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

WIDTH = 4  # prefixes that are looked at together, beyond as many as there shall be outputs


class Walks(NamedTuple):
    """Probabilities of spelling with slots: a walk begins at vertex 0 and visits some of the slots, vertices 1 to s."""

    label: Tensor  # [B, s, V]: what a slot that is visited spells
    move: Tensor  # [B, s + 1, s]: from each vertex to each slot, 0 but to later ones
    end: Tensor  # [B, s + 1]: from each vertex to the end


@torch.no_grad()
def best_outputs(walks: Walks, best: int) -> list[list[tuple[list[int], float]]]:
    r"""The `best` most probable outputs of each item: labels and log-probability, the most probable first.

    .. math:: p(y) = \sum_{0 < v_1 < \dots < v_m} e(v_m, \text{end}) \prod_j e(v_{j-1}, v_j) p_{v_j}(y_j)

    A beam over prefixes (Graves, 2012), whose probability is summed over all walks that spell them: no output is more
    probable than its prefixes, so that the search ends when no prefix that is left can be among the best any more.
    What the beam has let go may have been: it holds `WIDTH` more prefixes than outputs are wanted. O(m s^2) time.
    """
    label, move, end = (part.double() for part in walks)
    batch, slots, labels = label.shape
    begin = torch.arange(slots + 1, device=label.device) == 0
    at = begin.double().expand(batch, 1, -1)  # where the walks of a prefix are, given that they spell it
    prefix = label.new_zeros(batch, 1)  # log-probability of each
    found = label.new_full((batch, best), -torch.inf)
    place = torch.zeros(batch, best, 2, dtype=torch.long, device=label.device)  # length of each found, and its prefix
    steps: list[tuple[Tensor, Tensor]] = []  # of each length the prefix before, and the label
    for length in range(slots + 1):
        ended = prefix + (at * end[:, None, :]).sum(2).log()
        number = torch.arange(ended.size(1), device=label.device).expand_as(ended)
        here = torch.stack([torch.full_like(number, length), number], 2)
        found, chosen = torch.cat([found, ended], 1).topk(best, 1)
        place = torch.cat([place, here], 1).gather(1, chosen[:, :, None].expand(-1, -1, 2))
        if length == slots or bool((prefix.amax(1) <= found[:, -1]).all()):
            break
        reached = at @ move  # [B, K, s]
        spelled = reached @ label  # [B, K, V]
        prefix, chosen = (prefix[:, :, None] + spelled.log()).flatten(1).topk(min(best + WIDTH, spelled[0].numel()), 1)
        before, symbol = chosen // labels, chosen % labels
        walk = reached.gather(1, before[:, :, None].expand(-1, -1, slots))
        walk = walk * label.gather(2, symbol[:, None, :].expand(-1, slots, -1)).mT
        at = pad(walk / walk.sum(2, keepdim=True).clamp(min=torch.finfo(walk.dtype).tiny), (1, 0))
        steps.append((before, symbol))
    rows = [(before.tolist(), symbol.tolist()) for before, symbol in steps]
    outputs: list[list[tuple[list[int], float]]] = []
    for item, (values, places) in enumerate(zip(found.tolist(), place.tolist(), strict=True)):
        outputs.append([])
        for value, (length, number) in zip(values, places, strict=True):
            if value == -torch.inf:
                break
            spelling = []
            for before, symbol in reversed(rows[:length]):
                spelling.append(symbol[item][number])
                number = before[item][number]
            outputs[-1].append((spelling[::-1], value))
    return outputs
