"""Named things that can be added to: objectives and morphs. Names are known without importing what they stand for."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


class Registry(dict[str, Any]):
    """Names and what they stand for; `register` adds one, and from then on the command line knows it too.

    What is built in is given as `module:attribute`, and imported when it is first asked for. So is the class `of`: what
    is registered is derived from it; without one it is anything that can be called with a `ModelConfig`.
    """

    def __init__(self, kind: str, of: str = "", **built_in: str) -> None:
        super().__init__(built_in)
        self.kind, self.of = kind, of  # `kind` is what the names are of, for messages

    def register(self, name: str) -> Callable[[Any], Any]:
        """Decorator: `@OBJECTIVES.register("mine")` before a class. A name stands for one thing only."""
        if not isinstance(name, str) or not name or "," in name:
            wanted = 'a name without commas, such as @OBJECTIVES.register("mine")'
            raise TypeError(f"register takes {wanted}, but got {name!r:.80}")
        if name in self:
            raise ValueError(f"there is a {self.kind} named {name!r} already: choose another name")

        def add(entry: Any) -> Any:
            if not self._fits(entry):
                wanted = f"a class derived from {self.of.partition(':')[2]}" if self.of else "a class or a function"
                raise TypeError(f"the {self.kind} {name!r} must be {wanted}, but is {entry!r:.80}")
            self[name] = entry
            return entry

        return add

    def _fits(self, entry: Any) -> bool:
        if self.of or isinstance(entry, type):
            return isinstance(entry, type) and (not self.of or issubclass(entry, _imported(self.of)))
        return callable(entry) and not hasattr(entry, "forward")  # a module is called with other things

    def __missing__(self, name: str) -> Any:
        own = f"if {name!r} is your own, import the module that registers it first"
        raise ValueError(f"unknown {self.kind} {name!r}: choose one of {', '.join(self)}; {own}")

    def __getitem__(self, name: str) -> Any:
        entry = super().__getitem__(name)
        if isinstance(entry, str):
            entry = self[name] = _imported(entry)
        return entry


def _imported(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"grapheme_nn.{module}"), attribute)


OBJECTIVES = Registry(
    "loss",
    of="objective.base:Objective",
    monotone="objective.monotone:Monotone",
    structural="objective.structural:Structural",
    path="objective.path:Path",
    ctc="objective.ctc:CTC",
)
"""What a network is trained by: classes of `objective.Objective`."""

MORPHS = Registry(
    "morph",
    merge="nn.stages:merge",
    lift="nn.stages:lift",
    tour="nn.stages:tour",
    split="nn.stages:split",
    rewire="nn.stages:rewire",
    local_pool="nn.stages:local_pool",
    soft_pool="nn.stages:soft_pool",
)
"""What a network's chain is made of: functions from a `ModelConfig` to a module from `Morph` to `Morph`."""
