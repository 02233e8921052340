"""Gradient report of a network: for every parameter its norm, its share of zeros, its error against differences."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data.data import BaseData

from grapheme_nn.check.numerical import DEAD, RANDOM, along, compare, flat_outputs, same_bits, slope
from grapheme_nn.data import Pair
from grapheme_nn.data.examples import Examples
from grapheme_nn.model import GraphTransformNet

LIMIT = 1e-4
_ROUNDING = 1e-15  # a gradient that is no larger, compared with the largest there is, is zero but for rounding

Loss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class ParameterReport:
    """The gradient of one parameter."""

    name: str
    norm: float  # L2
    zero_share: float  # of the entries whose gradient is exactly 0
    error: float  # the worst: |analytical - numerical| / the largest of the entries compared, as in `check_gradients`
    entries: int  # compared one by one; one direction through all entries is compared too
    zeros: int  # of all entries
    size: int
    passed: bool
    note: str = ""  # why not

    def __str__(self) -> str:
        figures = f"{self.norm:9.2e} {self.zero_share:6.1%} {self.error:8.1e} {self.entries:8,}"
        return f"{self.name:40} {'ok' if self.passed else 'FAIL':4} {figures}  {self.note}".rstrip()


@dataclass(frozen=True)
class GradientReport:
    """What `gradient_report` found; true where every parameter can learn and has the right gradient."""

    parameters: tuple[ParameterReport, ...]

    def __bool__(self) -> bool:
        return all(each.passed for each in self.parameters)

    def __str__(self) -> str:
        header = f"{'parameter':40}           norm  zeros    error  entries"
        return "\n".join([header, *map(str, self.parameters)])

    __repr__ = __str__


def gradient_report(
    model: nn.Module,
    batch: Any,
    loss: Loss | None = None,
    *,
    entries: int = 8,
    limit: float = LIMIT,
) -> GradientReport:
    """For every parameter: the norm of its gradient, its share of zeros, and how far it is from central differences.

        assert gradient_report(model, [("abc", "ab"), ("xyz", "xy")])

    A copy of the model in float64 is examined, in the mode (`train` or `eval`) that the model is in. `loss(model,
    batch)` is what is differentiated, added up where it is not one number; floats in the batch are converted. A
    `GraphTransformNet` needs none: its batch is a list of `Pair` or of (input, target), or two PyG batches, and its
    loss that of its objective.

    Compared are the entry with the largest gradient, a random sample of `entries` others, and, with a random sign for
    each, all entries at once. A parameter fails if the error is above `limit`, or if its gradient is zero everywhere
    (it cannot learn), or zero but for rounding in some entries (they have no influence, as the bias of a key in
    attention). Frozen parameters are left out. Where two passes differ, as with dropout, the one row says which module
    does.

    Differences tell exact gradients from estimates: that of a hard decision (`straight_through`) is no derivative of
    the value, and is found to differ. Of a `Merge`, look at `estimator = "soft"`, or at `eval()`.
    """
    if entries < 0:
        raise ValueError(f"entries must not be negative, but is {entries}")
    model = deepcopy(model).double()
    loss, batch = _loss_and_batch(model, batch, loss)
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not named:
        raise ValueError(
            f"no parameter of this {type(model).__name__} requires a gradient: there is nothing to report on"
        )

    def value() -> list[Tensor]:
        return flat_outputs(loss(model, batch))

    outputs = value()
    if not outputs:
        raise ValueError("the loss returned no floats: it must return a tensor of them")
    with torch.no_grad():
        again = value()
    if not same_bits(outputs, again):
        culprit = first_random(model, value)
        return GradientReport((ParameterReport(culprit, torch.nan, 0.0, torch.inf, 0, 0, 0, False, RANDOM),))
    if not all(bool(out.isfinite().all()) for out in outputs):
        raise ValueError("the loss is not finite, so it has no gradient: look at the model's outputs and the batch")
    if not any(out.requires_grad for out in outputs):
        raise ValueError("the loss depends on no parameter: was it computed without gradients, or detached?")
    total = torch.stack([out.sum() for out in outputs]).sum()
    parameters = [parameter for _, parameter in named]
    gradients = torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)
    largest = max((float(g.abs().max()) for g in gradients if g.numel()), default=0.0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        reports = [
            _report(name, parameter, gradient, value, largest, entries, limit, generator)
            for (name, parameter), gradient in zip(named, gradients, strict=True)
        ]
    return GradientReport(tuple(reports))


def _report(
    name: str,
    parameter: Tensor,
    gradient: Tensor,
    value: Callable[[], list[Tensor]],
    largest: float,
    entries: int,
    limit: float,
    generator: torch.Generator,
) -> ParameterReport:
    flat = gradient.flatten()
    own = float(flat.abs().max()) if flat.numel() else 0.0
    zeros = int((flat == 0).sum())
    shares = float(flat.norm()), zeros / max(flat.numel(), 1)
    if own <= _ROUNDING * largest:
        return ParameterReport(name, *shares, 0.0, 0, zeros, flat.numel(), False, DEAD)
    largest_at = int(flat.abs().argmax())
    others = [place for place in torch.randperm(flat.numel(), generator=generator).tolist() if place != largest_at]
    places = [largest_at, *others[:entries]]
    directions = [along(flat, place) for place in places]
    directions.append(torch.randint(0, 2, flat.shape, generator=generator).to(flat) * 2 - 1)
    wanted = [float(flat @ direction) for direction in directions]
    weights = [torch.ones_like(output) for output in value()]
    found = [
        slope(value, weights, parameter, direction.view_as(parameter), expected, 0.1 * limit * own)
        for direction, expected in zip(directions, wanted, strict=True)
    ]
    compared = compare(name, wanted, found, limit, max(own, *map(abs, found[:-1])))
    passed, note = compared.passed, compared.note
    cancelled = int(((flat != 0) & (flat.abs() <= _ROUNDING * own)).sum())
    if passed and cancelled:
        passed, note = (
            False,
            f"{cancelled} of its {flat.numel():,} entries have a gradient of rounding alone: no influence",
        )
    return ParameterReport(name, *shares, compared.error, len(places), zeros, flat.numel(), passed, note)


def first_random(model: nn.Module, run: Callable[[], object]) -> str:
    """Where two passes first differ: inside a module that was given the same, or on the way to one."""
    passes: list[list[tuple[str, list[Tensor], list[Tensor]]]] = []

    def remember(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda module, given, result: passes[-1].append((name, _tensors(given), _tensors(result)))

    hooks = [module.register_forward_hook(remember(name)) for name, module in model.named_modules() if name]
    try:
        for _ in range(2):
            passes.append([])
            run()
    finally:
        for hook in hooks:
            hook.remove()
    for (name, given, one), (_, given_again, other) in zip(*passes, strict=False):
        if not same_bits(given, given_again):
            return f"on the way to {name} ({type(model.get_submodule(name)).__name__})"
        if not same_bits(one, other):
            return f"{name} ({type(model.get_submodule(name)).__name__})"
    return "the loss"


def _tensors(result: Any) -> list[Tensor]:
    """What a module was given or returned, as far as it is tensors."""
    if isinstance(result, tuple | list):
        return [tensor for part in result for tensor in _tensors(part)]
    try:
        return flat_outputs(result)
    except TypeError:
        return []


def _loss_and_batch(model: nn.Module, batch: Any, loss: Loss | None) -> tuple[Loss, Any]:
    if loss is not None:
        return loss, _exact(batch)
    if not isinstance(model, GraphTransformNet):
        raise ValueError(f"a {type(model).__name__} has no loss of its own: give loss, a function of model and batch")
    if isinstance(batch, tuple) and len(batch) == 2 and all(isinstance(part, BaseData) for part in batch):
        return net_loss, batch
    if not isinstance(batch, list | tuple) or not batch or not all(_is_pair(pair) for pair in batch):
        raise ValueError(
            f"the batch must be a list of pairs, such as [('abc', 'ab'), ('xyz', 'xy')], but is {batch!r:.60}"
        )
    examples = batch_of(model, [Pair(*pair) for pair in batch])
    with torch.no_grad():
        if not bool((model.objective(model(examples[0]), examples[1]).value != torch.inf).any()):
            raise ValueError("the model can spell none of these targets, so that none has a loss: has it their labels?")
    return net_loss, examples


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, tuple | list) and len(pair) in (2, 3) and all(isinstance(text, str) for text in pair[:2])


def _exact(batch: Any) -> Any:
    """The batch with its floats in float64, as the model's are: a tensor, some of them, or a graph of PyG."""
    if isinstance(batch, Tensor):
        return batch.double() if batch.is_floating_point() else batch
    if isinstance(batch, BaseData):
        return copy(batch).apply(_exact)
    if isinstance(batch, Mapping):
        return {key: _exact(value) for key, value in batch.items()}
    return type(batch)(map(_exact, batch)) if type(batch) in (list, tuple) else batch


def batch_of(model: GraphTransformNet, pairs: Sequence[Pair]) -> tuple[BaseData, BaseData]:
    """Pairs as the network reads them."""
    config = model.config
    with_features = bool(config.features)
    examples = Examples.of(pairs, config.input_unit, config.target_unit, with_features=with_features)
    return examples.batch(range(len(pairs)))


def net_loss(model: GraphTransformNet, batch: tuple[BaseData, BaseData]) -> Tensor:
    """The mean of what training takes: the objective's value of each target that can be spelled."""
    return model.objective(model(batch[0]), batch[1]).mean
