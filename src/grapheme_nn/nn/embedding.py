"""Embeddings without a vocabulary (hash embeddings: Svenstrup et al., 2017): any unit has one, seen before or not."""

import torch
from torch import Tensor, nn

# Odd 64-bit constants, one for each hash; the multiplications wrap around.
_MULTIPLIERS = [0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9, 0x14D049BB133111EB, 0x2545F4914F6CDD1D]
_MULTIPLIERS += [0x6C62272E07BB0143, 0x5851F42D4C957F2D, 0x369DEA0F31A53F85, 0x1B03738712FAD5C9]


class HashEmbedding(nn.Module):
    r"""An embedding for every int64: several hashes of it, each a row of a table of its own, one after the other.

    .. math:: e(x) = [E_1[h_1(x)], \dots, E_k[h_k(x)]]

    Two units are the same to the network only where all k hashes agree, one chance in `buckets`^k.

    channels: of the result, a multiple of `hashes`. Input int64 [...], result [..., channels].
    """

    def __init__(self, channels: int, *, buckets: int = 1024, hashes: int = 4) -> None:
        super().__init__()
        if not 1 <= hashes <= len(_MULTIPLIERS):
            raise ValueError(f"hashes must lie between 1 and {len(_MULTIPLIERS)}, but is {hashes}")
        if channels < 1 or channels % hashes:
            raise ValueError(f"channels must be a multiple of hashes ({hashes}), but is {channels}")
        if not 1 <= buckets <= 1 << 31:
            raise ValueError(f"buckets must lie between 1 and 2^31, but is {buckets}")
        self.channels, self.buckets, self.hashes = channels, buckets, hashes
        self.table = nn.Parameter(torch.empty(hashes * buckets, channels // hashes))
        self.reset_parameters()
        self.register_buffer("multiplier", torch.tensor(_MULTIPLIERS[:hashes]), persistent=False)
        self.register_buffer("offset", torch.arange(hashes) * buckets, persistent=False)
        self.multiplier: Tensor
        self.offset: Tensor

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table)

    def forward(self, unit: Tensor) -> Tensor:
        return nn.functional.embedding(self.rows(unit), self.table).flatten(-2)

    def rows(self, unit: Tensor) -> Tensor:
        """The row of each hash in the common table, int64 [..., hashes]."""
        # A product's upper bits depend on all bits below them: fold them down before and after multiplying.
        mixed = (unit ^ (unit >> 29))[..., None] * self.multiplier
        mixed = (mixed ^ (mixed >> 32)) * self.multiplier
        return ((mixed >> 31) & 0x7FFFFFFF) % self.buckets + self.offset

    def extra_repr(self) -> str:
        return f"{self.channels}, buckets={self.buckets}, hashes={self.hashes}"
