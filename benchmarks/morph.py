"""Morphs against PyG's poolers, forward and backward, in one run: one thread, CPU time, best of five.

python benchmarks/morph.py
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch_geometric.nn import ClusterPooling, EdgePooling, dense_diff_pool

from grapheme_nn.morph import LocalPool, Merge, SoftPool

CHANNELS = 64


def milliseconds(run: Callable[[], object], repeats: int = 5) -> float:
    if repeats > 1:  # what runs long needs no warming up
        for _ in range(3):
            run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times) * 1e3


def limit() -> float:
    """Floating point operations per millisecond of this machine's matrix product."""
    a, b = torch.randn(1000, 1000), torch.randn(1000, 1000)
    return 2e9 / milliseconds(lambda: a @ b)


def both_ways(n: int, graphs: int = 1) -> torch.Tensor:
    node = torch.arange(n - 1)
    edges = torch.cat([torch.stack([node, node + 1]), torch.stack([node + 1, node])], dim=1)
    return torch.cat([edges + n * graph for graph in range(graphs)], dim=1)


def soft_pool(n: int, k: int, graphs: int) -> Callable[[], object]:
    x = torch.randn(graphs * n, CHANNELS, requires_grad=True)
    edge_index, batch = both_ways(n, graphs), torch.arange(graphs).repeat_interleave(n)
    pool = SoftPool(CHANNELS, k)

    def run() -> None:
        morph = pool(x, edge_index, None, batch if graphs > 1 else None)
        (morph.x.sum() + morph.edge_weight.square().sum() + sum(morph.losses.values())).backward()

    return run


def peer_soft_pool(n: int, k: int, graphs: int) -> Callable[[], object]:
    x = torch.randn(graphs, n, CHANNELS, requires_grad=True)
    edge_index, score = both_ways(n, graphs), torch.nn.Linear(CHANNELS, k)
    adjacency = torch.zeros(graphs, n, n)  # made outside the clock
    adjacency[edge_index[0] // n, edge_index[0] % n, edge_index[1] % n] = 1

    def run() -> None:
        features, coarse, link, entropy = dense_diff_pool(x, adjacency, score(x))
        (features.sum() + coarse.square().sum() + link + entropy).backward()

    return run


def chain(n: int, ordered: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A directed chain whose neighbours are alike by chance, or less and less along it."""
    generator = torch.Generator().manual_seed(0)
    turn = torch.linspace(0.1, 3.0, n) if ordered else 3 * torch.rand(n, generator=generator)
    angle = turn.cumsum(0)
    x = torch.cat([angle.cos()[:, None], angle.sin()[:, None], torch.zeros(n, CHANNELS - 2)], dim=1)
    return x.requires_grad_(), torch.stack([torch.arange(n - 1), torch.arange(1, n)])


def merge(n: int, ordered: bool) -> Callable[[], object]:
    x, edge_index = chain(n, ordered)
    module = Merge(0.6)
    return lambda: module(x, edge_index).x.square().sum().backward()


def peer_merge(kind: type[torch.nn.Module], n: int, ordered: bool) -> Callable[[], object]:
    x, edge_index = chain(n, ordered)
    pool, batch = kind(CHANNELS), torch.zeros(n, dtype=torch.long)
    return lambda: pool(x, edge_index, batch)[0].square().sum().backward()


def peak_megabytes(what: str, *arguments: object) -> float:
    """How much a fresh process grows while it runs one function of this file once (Linux's high-water mark, reset)."""
    script = f"""
import runpy, torch
from pathlib import Path
def kilobytes(name):
    return int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0])
torch.set_num_threads(1)
run = runpy.run_path({__file__!r})["{what}"](*{arguments!r})
Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
run()
print((kilobytes("VmHWM") - before) / 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return float(done.stdout)


def local_pool(n: int) -> Callable[[], object]:
    x = torch.randn(n, 16, requires_grad=True)
    edge_index = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    pool = LocalPool(16, 0.5, 3)

    def run() -> None:
        morph = pool(x, edge_index)
        (morph.x.square().sum() + morph.edge_weight.square().sum()).backward()

    return run


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    console = Console(width=130)
    rate = limit()
    table = Table("operator", "graph", "limit ms", "ours ms", "PyG ms", "PyG / ours", "ours MB", "PyG MB", "ratio")
    for n, k, graphs in ((1000, 100, 1), (4000, 100, 1), (16000, 100, 1), (32, 8, 64)):
        floor = graphs * n * (12 * CHANNELS * k + 10 * k * k) / rate
        own = milliseconds(soft_pool(n, k, graphs))
        peer = milliseconds(peer_soft_pool(n, k, graphs), 5 if n < 16000 else 1)
        columns = [f"{floor:.2f}", f"{own:.1f}", f"{peer:.1f}", f"{peer / own:.1f}x"]
        if n == 16000:
            small, large = (peak_megabytes(what, n, k, graphs) for what in ("soft_pool", "peer_soft_pool"))
            columns += [f"{small:.0f}", f"{large:.0f}", f"{large / small:.0f}x"]
        table.add_row("SoftPool / dense_diff_pool", f"{graphs} x {n}, k {k}", *columns)
    for ordered in (False, True):
        n, name = 10_000, "ordered" if ordered else "by chance"
        own = milliseconds(merge(n, ordered))
        floor = 12 * n * CHANNELS * 4 / 8e6  # bytes: x and its gradient are read and written; 8 GB/s
        for kind, repeats in ((EdgePooling, 2), (ClusterPooling, 1)):
            peer = milliseconds(peer_merge(kind, n, ordered), repeats)
            columns = f"{floor:.2f}", f"{own:.2f}", f"{peer:.0f}", f"{peer / own:.0f}x"
            table.add_row(f"Merge / {kind.__name__}", f"chain {n}, scores {name}", *columns)
    console.print(table)
    table = Table("LocalPool", "ms", "time / tenfold n", "MB at most")
    before = None
    for n in (10_000, 100_000, 1_000_000):
        own = milliseconds(local_pool(n))
        memory = f"{peak_megabytes('local_pool', n):.0f}"
        table.add_row(f"{n}", f"{own:.1f}", "" if before is None else f"{own / before:.1f}", memory)
        before = own
    console.print(table)
    console.print(f"this process held at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help is answered, anything else refused
    main()
