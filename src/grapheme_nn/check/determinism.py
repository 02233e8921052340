"""`check determinism`: the same seed and the same input give the same bits.

**Where torch promises it.** On one machine's CPU, with one release and one number of threads, torch promises the same
bits from run to run if deterministic algorithms are asked for, as they are here: columns `again` and `other process`.
Between numbers of threads it promises nothing for a sum that threads share, and the gradient of a LayerNorm's weights
is shared out however small it is. So with 2 threads the forward pass, the morphs, the loss and the texts, in whose
small tensors no sum is shared, must be `as with 1`, to the bit; the gradient and what is trained by it must be the
`same again`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from random import Random

import torch
from torch import Tensor

from grapheme_nn.check.nets import FEATURED, PAIRS, small_net
from grapheme_nn.check.numerical import flat_outputs
from grapheme_nn.check.parameters import batch_of, net_loss
from grapheme_nn.check.table import Figure, Row
from grapheme_nn.config import TrainConfig
from grapheme_nn.model import GraphTransformNet
from grapheme_nn.morph import LocalPool, Merge, Morph, Rewire, SoftPool, Split
from grapheme_nn.registry import OBJECTIVES
from grapheme_nn.trainer import Trainer

SEED, OTHER_SEED, STEPS = 0, 1, 10
PROMISED = ("forward pass", "morphs", "loss", "texts")  # the same bits whatever the number of threads
_GRAPH = torch.tensor([[0, 0, 1, 2, 2, 3, 4, 6], [1, 2, 3, 3, 4, 5, 5, 7]])


def digests(seed: int) -> dict[str, str]:
    """What comes of a seed, each as a digest of all its bits."""
    before = torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.use_deterministic_algorithms(True)
        torch.seed()  # by chance, so that one can see what depends on it though it should not: dropout that is off
        try:
            nets = [small_net(FEATURED, seed=seed, loss=name, dropout=0.3).eval() for name in OBJECTIVES]
            batches = [batch_of(net, FEATURED) for net in nets]
            losses = [net_loss(net, batch) for net, batch in zip(nets, batches, strict=True)]
            weights = [weight for net in nets for weight in net.parameters() if weight.requires_grad]
            total = torch.stack(losses).sum()
            gradient = torch.autograd.grad(total, weights, allow_unused=True, materialize_grads=True)
            return {
                "forward pass": digest(net(batch[0]).label_log_prob for net, batch in zip(nets, batches, strict=True)),
                "morphs": digest(_morphs(seed)),
                "loss": digest(losses),
                "texts": digest(_scores(net) for net in nets),
                "gradient": digest(gradient),
                f"{STEPS} training steps": digest(_trained(seed)),
            }
        finally:
            torch.use_deterministic_algorithms(before)


def digest(tensors: Iterable[Tensor]) -> str:
    total = blake2b(digest_size=8)
    for tensor in tensors:
        total.update(tensor.detach().cpu().double().contiguous().numpy().tobytes())
    return total.hexdigest()


def rows() -> Iterator[Row]:
    """Every thing again here, in another process, in one with two threads (there twice), and with another seed."""
    children = [_child(SEED, threads) for threads in (1, 2)]
    first, again, other = digests(SEED), digests(SEED), digests(OTHER_SEED)
    (elsewhere, _), (threaded, threaded_again) = (_answer(child) for child in children)
    for name, bits in first.items():
        with_two = bits if name in PROMISED else threaded_again.get(name, "")
        same = {
            "again": again[name] == bits,
            "other process": elsewhere.get(name) == bits,
            "2 threads": threaded.get(name) == with_two,
            "other seed": other[name] != bits,
        }
        said = {"2 threads": "as with 1" if name in PROMISED else "same again", "other seed": "differs"}
        figures: dict[str, Figure] = {
            column: said.get(column, "same bits") if right else "WRONG" for column, right in same.items()
        }
        wrong = [column for column, right in same.items() if not right]
        note = f"not as it should be: {', '.join(wrong)}" if wrong else ""
        yield Row("determinism", name, "", not wrong, figures, note)


def _morphs(seed: int) -> list[Tensor]:
    """Every morph once, those that sample too."""
    torch.manual_seed(seed)
    x = torch.randn(8, 4) + 0.5
    operators = [Merge(0.5, estimator=name) for name in ("soft", "straight_through", "gumbel", "reinforce")]
    modules = [*operators, SoftPool(4, 2), LocalPool(4), Split(4, 2), Rewire(4)]
    morphs: list[Morph] = [module(x, _GRAPH) for module in modules]
    return [tensor for morph in morphs for tensor in (*flat_outputs(morph), morph.edge_index)]


def _scores(net: GraphTransformNet) -> Tensor:
    """How sure a network is of what it makes of some texts, though it is still in training: its dropout is off here."""
    torch.seed()
    features = [pair.features for pair in FEATURED]
    texts = [pair.input for pair in FEATURED]
    return torch.tensor(net.train().transform(texts, features=features, return_scores=True)[1], dtype=torch.float64)


def _trained(seed: int) -> list[Tensor]:
    """The weights after steps of the library's own training, dropout and all."""
    shape = {"width": 16, "hidden": 8, "heads": 2, "layers": 1}
    config = TrainConfig(morphs=("merge", "lift", "split"), seed=seed, epochs=1, unseen=0.5, **shape)  # type: ignore[arg-type]
    trainer = Trainer(PAIRS, PAIRS, config)
    for step in range(STEPS):
        trainer.step([[0, 1, 2]], 3e-3, Random(seed + step))
    return list(trainer.network.parameters())


def _child(seed: int, threads: int) -> "subprocess.Popen[str]":
    """Another process at the same work; the order of its sets and dictionaries is another one, too."""
    command = [sys.executable, "-m", "grapheme_nn.check.determinism", str(seed), str(threads)]
    environment = os.environ | {"PYTHONHASHSEED": str(1 + threads), "OMP_NUM_THREADS": str(threads)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def _answer(child: "subprocess.Popen[str]") -> list[dict[str, str]]:
    """What it found, twice; nothing where it failed."""
    out, _ = child.communicate()
    found: list[dict[str, str]] = json.loads(out) if child.returncode == 0 else [{}, {}]
    return found


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[2]))
    print(json.dumps([digests(int(sys.argv[1])) for _ in range(2)]))
