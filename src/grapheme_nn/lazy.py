"""Objects some of whose fields are made when they are first asked for."""

from collections.abc import Callable
from typing import Any, Self

from torch import Tensor


class Lazy:
    """An object some of whose fields are made when one of them is first asked for."""

    def later(self, names: tuple[str, ...], make: Callable[[], tuple[Tensor, ...]]) -> Self:
        """This object, for whose fields `names` somebody has yet to call `make`."""
        for name in names:
            self.__dict__.pop(name, None)
        self.__dict__["_later"] = self.__dict__.get("_later", {}) | dict.fromkeys(names, (names, make))
        return self

    def __getstate__(self) -> dict[str, Any]:
        """All fields, made by now: what makes them cannot be pickled."""
        for name in self.__dict__.get("_later", ()):
            getattr(self, name)
        return {name: value for name, value in self.__dict__.items() if name != "_later"}

    def __copy__(self) -> Self:
        """What is to be made later still is: `__getstate__` would make it."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def __getattr__(self, name: str) -> Tensor:
        if name not in self.__dict__.get("_later", ()):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        names, make = self.__dict__["_later"][name]
        self.__dict__.update(zip(names, make(), strict=True))
        return self.__dict__[name]  # type: ignore[no-any-return]
