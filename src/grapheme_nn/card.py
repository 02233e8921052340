"""The card of a model or an ensemble: what a reader of its folder wants to know first."""

from collections.abc import Sequence
from typing import Any

from grapheme_nn.config import Resolved
from grapheme_nn.data import Graph, Pair
from grapheme_nn.drawing import preview


def model_card(
    config: Resolved,
    pairs: Sequence[Pair],
    dev: Sequence[Pair],
    held_out: bool,
    result: dict[str, Any],
    taught: str = "",
) -> str:
    """The card of a model, from its settings, what it learned from, and the `result` that `config.json` has.

    `taught` is what else it learned from, in words.
    """
    kinds, examples = _examples(pairs)
    ended = f"training ended: {result['ended']}" if result["ended"] else "training has not ended"
    return f"""# A grapheme model

Turns {kinds}, learned from {len(pairs):,} pairs such as {examples}{taught}.

- {_right(result, dev, held_out)} (epoch {result["best_epoch"]}, the best of {result["epochs_run"]}; {ended}).
- Loss `{config.loss}`, morphs `{", ".join(config.morphs)}`, preset `{config.preset}`, seed {config.seed}.
- {_units(config)}.

```python
from grapheme_nn import GraphTransformNet

model = GraphTransformNet.load("this folder")
{_call(pairs)}
```
"""


def ensemble_card(
    config: Resolved, pairs: Sequence[Pair], dev: Sequence[Pair], held_out: bool, result: dict[str, Any]
) -> str:
    """The card of an ensemble, from the settings of its first member and as that of a model."""
    kinds, examples = _examples(pairs)
    each = ", ".join(f"{share:.2%}" for share in result["members"])
    return f"""# A grapheme ensemble

Turns {kinds} by the vote of {len(result["members"])} models, which learned from {len(pairs):,} pairs such as \
{examples}.

- {_right(result, dev, held_out)}; of each model by itself, {each}.
- Morphs `{", ".join(config.morphs)}`, preset `{config.preset}`; each model has its own card in `members`.
- {_units(config)}.

```python
from grapheme_nn import load

model = load("this folder")
{_call(pairs)}
```
"""


def _examples(pairs: Sequence[Pair]) -> tuple[str, str]:
    """What becomes what, in words and as an example."""
    kinds = ["a graph" if isinstance(side, Graph) else "a text" for side in pairs[0][:2]]
    shown = [preview(side) if isinstance(side, Graph) else f"`{side}`" for side in pairs[0][:2]]
    return " into ".join(kinds), " to ".join(shown)


def _right(result: dict[str, Any], dev: Sequence[Pair], held_out: bool) -> str:
    judges = "dev pairs" if held_out else "pairs that it learned from, for none was held out,"
    return f"{result['best_dev_exact_match']:.2%} of {len(dev):,} {judges} are exactly right"


def _units(config: Resolved) -> str:
    sides = (("Input", config.input_unit), ("output", config.target_unit))
    return ", ".join(
        f"{name} is {'a graph' if unit == 'graph' else f'text in units of {unit}'}" for name, unit in sides
    )


def _call(pairs: Sequence[Pair]) -> str:
    given = ", features=[...]" if any(pair.features for pair in pairs) else ""
    example = pairs[0].input
    return f"model.transform([{example.as_dict() if isinstance(example, Graph) else example!r}]{given})"
