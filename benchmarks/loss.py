"""Times and memory of the losses beside POT's, and how well the structural loss follows exact edit distance.

    python benchmarks/loss.py               # one table: peer, us, the limit
    python benchmarks/loss.py --device cuda # the same on a GPU, in wall-clock time
    python benchmarks/loss.py --agreement   # 500 + 500 pairs against exact edit distance

CPU time of one thread, forward and backward, float32, best of five.
"""

import argparse
import random
import time
from collections.abc import Callable

import ot
import torch
from scipy.stats import spearmanr
from torch import Tensor
from torch_geometric.data import Batch, Data

from grapheme_nn import text_to_graph, texts_to_batch
from grapheme_nn.loss import StructuralLoss, edit_distance, sinkhorn

ITERATIONS, TEMPERATURE = 20, 0.1


def milliseconds(run: Callable[[], Tensor]) -> float:
    on_gpu = torch.get_default_device().type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time

    def once() -> float:
        start = clock()
        run().backward()
        if on_gpu:
            torch.cuda.synchronize()
        return clock() - start

    begin = clock()
    while clock() - begin < 0.5:  # a cold process is slower, the first time ten times as slow
        once()
    return 1e3 * min(once() for _ in range(5))


def saved_megabytes(run: Callable[[], Tensor]) -> float:
    """What autograd keeps for the backward pass, each storage counted once."""
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = run()
    assert kept.requires_grad
    return sum(saved.values()) / 1e6


def peak_flops() -> float:
    """Floating point operations per second, measured on a matrix product and its gradient."""
    matrix = torch.rand(1024, 1024, requires_grad=True)
    return 3 * 2 * 1024**3 / (1e-3 * milliseconds(lambda: (matrix @ matrix).sum()))


def sinkhorn_limit(batch: int, n: int, m: int, peak: float) -> float:
    """A product with the kernel is 2 n m operations: two an iteration, two in its adjoint, and two outer products."""
    return 1e3 * batch * ITERATIONS * 6 * 2 * n * m / peak


def structural_limit(batch: int, n: int, width: int, peak: float) -> float:
    """Two runs of half the iterations between the graphs, a quarter of one for each graph alone (no adjoint for the
    target), three costs with two gradients, and the four products of mean embeddings.
    """
    runs = 1 + 0.25 + 0.25 / 3
    return runs * sinkhorn_limit(batch, n, n, peak) + 1e3 * batch * 9 * 2 * n * n * width / peak


def random_chains(batch: int, length: int, width: int, seed: int) -> Batch:
    generator = torch.Generator("cpu").manual_seed(seed)
    letters = torch.randint(ord("a"), ord("z") + 1, (batch, length), generator=generator, device="cpu").tolist()
    chains = texts_to_batch(["".join(map(chr, word)) for word in letters])
    chains.activation = torch.randn(batch * length, width, generator=generator, device="cpu")
    return chains.to(torch.get_default_device())


def times() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    peak = peak_flops()
    print(f"{torch.get_default_device()}, {peak / 1e9:.0f} Gflop/s, torch {torch.__version__}, POT {ot.__version__}\n")
    print("| | POT ms | ours ms | POT / ours | limit ms | ours / limit | POT saves MB | ours MB | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for batch, n in ((64, 16), (64, 64), (8, 512)):
        cost = torch.rand(batch, n, n, requires_grad=True)

        def peer(cost: Tensor = cost) -> Tensor:
            solved = ot.batch.solve_batch(
                cost, reg=TEMPERATURE, max_iter=ITERATIONS, tol=0, method="log_sinkhorn", grad="autodiff"
            )
            return (solved.plan * cost).sum()

        def ours(cost: Tensor = cost) -> Tensor:
            return (sinkhorn(cost, iterations=ITERATIONS, temperature=TEMPERATURE) * cost).sum()

        report(f"sinkhorn {batch} x {n}^2", peer, ours, sinkhorn_limit(batch, n, n, peak))
    batch, n, width = 64, 64, 16
    predicted, target = random_chains(batch, n, width, 0), random_chains(batch, n, width, 1)
    predicted.activation.requires_grad_()
    loss = StructuralLoss(clique=0.0)
    cost = torch.rand(batch, n, n, requires_grad=True)
    adjacency = torch.diag_embed(torch.ones(batch, n - 1), offset=1)

    def fused_peer() -> Tensor:
        return ot.batch.solve_gromov_batch(
            adjacency,
            adjacency,
            reg=TEMPERATURE,
            M=cost,
            alpha=0.5,
            symmetric=False,
            max_iter=10,
            tol=0,
            max_iter_inner=20,
            tol_inner=0,
        ).value.sum()

    def fused_ours() -> Tensor:
        return loss(predicted, target).mean

    report(f"node + edge on chains {batch} x {n}^2", fused_peer, fused_ours, structural_limit(batch, n, width, peak))


def report(name: str, peer: Callable[[], Tensor], ours: Callable[[], Tensor], limit: float) -> None:
    theirs, our = milliseconds(peer), milliseconds(ours)
    their_memory, our_memory = saved_megabytes(peer), saved_megabytes(ours)
    print(
        f"| {name} | {theirs:.1f} | {our:.1f} | {theirs / our:.1f} | {limit:.2f} | {our / limit:.1f} "
        f"| {their_memory:.1f} | {our_memory:.1f} | {their_memory / our_memory:.1f} |"
    )


VOWELS, CONSONANTS = "aeiou", "bcdfghklmnprstvz"


def random_word(rng: random.Random) -> Data:
    start = rng.random() < 0.5
    letters = [rng.choice(VOWELS if (place + start) % 2 else CONSONANTS) for place in range(rng.randint(1, 7))]
    return text_to_graph("".join(letters))


def edited_word(word: Data, rng: random.Random) -> Data:
    letters = word.x.tolist()
    for _ in range(rng.randint(1, 3)):
        change, place, letter = rng.choice("sid"), rng.randrange(len(letters) + 1), ord(rng.choice(VOWELS + CONSONANTS))
        if change == "i" and len(letters) < 7:
            letters.insert(place, letter)
        elif change == "d" and len(letters) > 1:
            del letters[min(place, len(letters) - 1)]
        else:
            letters[min(place, len(letters) - 1)] = letter
    return text_to_graph("".join(map(chr, letters)))


def random_dag(rng: random.Random) -> Data:
    nodes = rng.randint(1, 7)
    edges = [(i, j) for i in range(nodes) for j in range(i + 1, nodes) if rng.random() < 0.35]
    return labelled([rng.randrange(4) for _ in range(nodes)], edges)


def edited_dag(dag: Data, rng: random.Random) -> Data:
    """One to three changes, then the nodes in another order."""
    labels, edges = dag.x.tolist(), {(s, t) for s, t in dag.edge_index.T.tolist()}
    for _ in range(rng.randint(1, 3)):
        change, nodes = rng.randrange(4), len(labels)
        if change == 0:
            labels[rng.randrange(nodes)] = rng.randrange(4)
        elif change == 1 and nodes > 1:
            s, t = sorted(rng.sample(range(nodes), 2))
            edges ^= {(s, t)}
        elif change == 2 and nodes < 7:
            labels.append(rng.randrange(4))
            edges.add((rng.randrange(nodes), nodes))
        elif nodes > 1:
            gone = rng.randrange(nodes)
            del labels[gone]
            edges = {(s - (s > gone), t - (t > gone)) for s, t in edges if gone not in (s, t)}
    place = rng.sample(range(len(labels)), len(labels))
    moved = sorted(range(len(labels)), key=place.__getitem__)
    return labelled([labels[node] for node in moved], sorted((place[s], place[t]) for s, t in edges))


def labelled(labels: list[int], edges: list[tuple[int, int]]) -> Data:
    return Data(x=torch.tensor(labels), edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T)


def agreement(pairs: int = 500, seed: int = 7) -> None:
    """Spearman's rank correlation with exact edit distance; every other pair is a graph and an edited copy of it."""
    torch.set_num_threads(1)
    print(f"Spearman with exact edit distance, {pairs} pairs (in brackets: of unrelated graphs alone), seed {seed}\n")
    print("| | StructuralLoss() | StructuralLoss.edit() |")
    print("|---|---|---|")
    for name, make, edit in (
        ("directed word chains, up to 7 letters", random_word, edited_word),
        ("labelled DAGs, up to 7 nodes", random_dag, edited_dag),
    ):
        rng = random.Random(seed)
        x, y = [], []
        for index in range(pairs):
            x.append(make(rng))
            y.append(make(rng) if index % 2 else edit(x[-1], rng))
        exact = [edit_distance(one, other).value for one, other in zip(x, y, strict=True)]
        cells = []
        for loss in (StructuralLoss(), StructuralLoss.edit()):
            total = loss(Batch.from_data_list(x), Batch.from_data_list(y)).total
            every, unrelated = (
                spearmanr(total[step], exact[step]).statistic for step in (slice(None), slice(1, None, 2))
            )
            cells.append(f"{every:.3f} ({unrelated:.3f})")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--agreement", action="store_true", help="compare with exact edit distance instead")
    options = parser.parse_args()
    torch.set_default_device(options.device)
    agreement() if options.agreement else times()
