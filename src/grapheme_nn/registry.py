"""Named things that can be added to: objectives and morphs. Names are known without importing what they stand for."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any


class Registry:
    """Names and what they stand for; `register` adds one, and from then on the command line knows it too.

    kind: what the names are of, for messages; built_in: names to `module:attribute`, imported when first asked for.
    """

    def __init__(self, kind: str, built_in: dict[str, str]) -> None:
        self.kind = kind
        self._entries: dict[str, Any] = dict(built_in)

    def register(self, name: str) -> Callable[[Any], Any]:
        """Decorator: `@OBJECTIVES.register("mine")` before a class. A name stands for one thing only."""
        if name in self._entries:
            raise ValueError(f"there is a {self.kind} named {name!r} already: choose another name")

        def add(entry: Any) -> Any:
            self._entries[name] = entry
            return entry

        return add

    def remove(self, name: str) -> None:
        """Forget a name that was registered."""
        del self._entries[name]

    def __getitem__(self, name: str) -> Any:
        if name not in self._entries:
            raise ValueError(f"unknown {self.kind} {name!r}: choose one of {', '.join(self)}")
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(import_module(module), attribute)
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


OBJECTIVES = Registry(
    "loss",
    {
        "monotone": "grapheme_nn.objective.monotone:Monotone",
        "structural": "grapheme_nn.objective.structural:Structural",
        "path": "grapheme_nn.objective.path:Path",
        "ctc": "grapheme_nn.objective.ctc:CTC",
    },
)
"""What a network is trained by: classes of `objective.Objective`."""

MORPHS = Registry(
    "morph",
    {
        "merge": "grapheme_nn.nn.stages:merge",
        "lift": "grapheme_nn.nn.stages:lift",
        "split": "grapheme_nn.nn.stages:split",
        "rewire": "grapheme_nn.nn.stages:rewire",
        "local_pool": "grapheme_nn.nn.stages:local_pool",
        "soft_pool": "grapheme_nn.nn.stages:soft_pool",
    },
)
"""What a network's chain is made of: functions from a `ModelConfig` to a module from `Morph` to `Morph`."""
