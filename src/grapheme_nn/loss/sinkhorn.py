"""The room of transport: a plan that moves the nodes of one graph onto those of another at the least cost."""

import torch
from torch import Tensor

from grapheme_nn.loss.potentials import alternate, plan, survey


def sinkhorn(
    cost: Tensor,
    source_mask: Tensor | None = None,
    target_mask: Tensor | None = None,
    *,
    iterations: int = 20,
    temperature: float = 0.1,
    void: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The entropic transport plan after a fixed number of Sinkhorn iterations; its gradient is that of this very map.

        P = argmin_P <P, cost> + temperature * KL(P | a b^T),    P 1 = a,  P^T 1 = b

    in the limit of many iterations; an iteration sets first the rows right, then the columns. Without `void` each of
    the n nodes of a side weighs 1/n. With `void`, the costs of deleting each source node [B, n] and of inserting each
    target node [B, m], each node weighs 1, and what a row or column of the plan lacks to 1 was deleted or inserted: a
    void node on either side, as heavy as the other side's nodes together, is their partner (void to void costs 0).

    Shapes: cost [B, n, m]; masks bool [B, n] and [B, m], False for padding, where the cost may be anything, inf
    included; returns P [B, n, m], 0 in padding, in single precision where cost is in half.

    Where the costs range over less than 40 temperatures, iterations are products with exp(-cost / temperature),
    otherwise log-sum-exps. To choose, and to refuse NaN, two numbers are read back from the device.
    """
    masked = source_mask is not None or target_mask is not None
    source_mask, target_mask = _checked(cost, source_mask, target_mask, iterations, temperature)
    if not cost.numel():
        return cost * 0.0
    if cost.dtype in (torch.float16, torch.bfloat16):
        cost = cost.float()
    scaled = cost / temperature
    source, target = source_mask.to(scaled.dtype), target_mask.to(scaled.dtype)
    if void is None:
        # A side without nodes gets weights all the same, against 1 / 0, and loses its plan in the end.
        nodes, others = source.sum(1, keepdim=True), target.sum(1, keepdim=True)
        source = torch.where(nodes > 0, source / nodes.clamp(min=1), 1.0)
        target = torch.where(others > 0, target / others.clamp(min=1), 1.0)
    else:
        for name, side, shape in zip(("deletion", "insertion"), void, (source.shape, target.shape), strict=True):
            if side.shape != shape:
                raise ValueError(f"the {name} costs of void must have shape {list(shape)}, but have {list(side.shape)}")
            if side.device != cost.device:
                raise ValueError(
                    f"the {name} costs of void are on {side.device}, but cost is on {cost.device}: move one"
                )
        deletion, insertion = (side.to(scaled) / temperature for side in void)
        scaled = border(scaled, deletion, insertion)
        source, target = with_void(source, target)
    if masked:
        # Padding must not reach exp or a product, not even times 0: inf * 0 is NaN. It takes the least cost there is.
        if void is not None:
            source_mask, target_mask = (
                torch.nn.functional.pad(m, (0, 1), value=True) for m in (source_mask, target_mask)
            )
        kept = source_mask[:, :, None] & target_mask[:, None, :]
        scaled = torch.where(kept, scaled, _least(scaled.detach(), kept))
    scaled = scaled - scaled.detach().amin()  # changes no plan, and the kernel needs no room for large numbers
    (costs,) = survey(scaled)
    with torch.autocast(cost.device.type, enabled=False):  # half precision would lose the plan
        row, column = alternate(costs, source, target, torch.zeros_like(target), iterations)
        result = plan(costs, source, target, row, column)
    if void is not None:
        return result[:, :-1, :-1]
    return torch.where(kept, result, 0.0) if masked else result


def border(cost: Tensor, deletion: Tensor, insertion: Tensor) -> Tensor:
    """The cost with a void row and column, [B, n + 1, m + 1]; the corner is 0."""
    wide = torch.cat([cost, deletion[:, :, None]], 2)
    return torch.cat([wide, torch.nn.functional.pad(insertion, (0, 1))[:, None, :]], 1)


def with_void(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The weights [B, n + 1] and [B, m + 1] with a void on either side that can take all nodes of the other.

    Between two graphs without nodes the voids weigh 1: there must be something to transport.
    """
    deleted, inserted = source.sum(1, keepdim=True), target.sum(1, keepdim=True)
    nothing = (deleted + inserted == 0).to(source.dtype)
    return torch.cat([source, inserted + nothing], 1), torch.cat([target, deleted + nothing], 1)


def _least(scaled: Tensor, kept: Tensor) -> Tensor:
    least = torch.where(kept, scaled, torch.inf).amin()
    return torch.where(least < torch.inf, least, 0.0)


def _checked(
    cost: Tensor, source_mask: Tensor | None, target_mask: Tensor | None, iterations: int, temperature: float
) -> tuple[Tensor, Tensor]:
    """The masks, all True where not given."""
    if cost.dim() != 3 or not cost.is_floating_point():
        raise ValueError(f"cost must be floats of shape [B, n, m], but is {cost.dtype} {list(cost.shape)}")
    check_options(iterations, temperature)
    masks = []
    for name, mask, size in (("source_mask", source_mask, cost.size(1)), ("target_mask", target_mask, cost.size(2))):
        if mask is None:
            mask = torch.ones(cost.size(0), size, dtype=torch.bool, device=cost.device)
        if mask.shape != (cost.size(0), size) or mask.dtype != torch.bool:
            raise ValueError(
                f"{name} must be bool of shape {[cost.size(0), size]}, but is {mask.dtype} {list(mask.shape)}"
            )
        if mask.device != cost.device:
            raise ValueError(f"{name} is on {mask.device}, but cost is on {cost.device}: move one of them")
        masks.append(mask)
    return masks[0], masks[1]


def check_options(iterations: int, temperature: float) -> None:
    """Refuses what no transport problem can be solved with."""
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, but is {iterations}")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive and finite, but is {temperature}")
