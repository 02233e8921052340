"""The model card: what a reader of a model folder wants to know first."""

from collections.abc import Sequence
from typing import Any

from grapheme_nn.config import Resolved
from grapheme_nn.data import Graph, Pair
from grapheme_nn.drawing import preview


def model_card(
    config: Resolved, pairs: Sequence[Pair], dev: Sequence[Pair], held_out: bool, result: dict[str, Any]
) -> str:
    """The card of a model, from its settings, what it learned from, and the `result` that `config.json` has."""
    example = pairs[0]
    given = ", features=[...]" if any(pair.features for pair in pairs) else ""
    kinds = ["a graph" if isinstance(side, Graph) else "a text" for side in example[:2]]
    shown = [preview(side) if isinstance(side, Graph) else f"`{side}`" for side in example[:2]]
    units = [
        f"{name} is {'a graph' if unit == 'graph' else f'text in units of {unit}'}"
        for name, unit in (("Input", config.input_unit), ("output", config.target_unit))
    ]
    call = repr(example.input.as_dict() if isinstance(example.input, Graph) else example.input)
    ended = f"training ended: {result['ended']}" if result["ended"] else "training has not ended"
    judges = "dev pairs" if held_out else "pairs that it learned from, for none was held out,"
    right = f"{result['best_dev_exact_match']:.2%} of {len(dev):,} {judges} are exactly right"
    return f"""# A grapheme model

Turns {kinds[0]} into {kinds[1]}, learned from {len(pairs):,} pairs such as {shown[0]} to {shown[1]}.

- {right} (epoch {result["best_epoch"]}, the best of {result["epochs_run"]}; {ended}).
- Loss `{config.loss}`, morphs `{", ".join(config.morphs)}`, preset `{config.preset}`, seed {config.seed}.
- {units[0]}, {units[1]}.

```python
from grapheme_nn import GraphTransformNet

model = GraphTransformNet.load("this folder")
model.transform([{call}]{given})
```
"""
