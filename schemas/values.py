"""Values: dataclasses that only type checkers treat as frozen, so that they are as quick to make as plain ones.

`dataclasses` sets each field of a frozen value through `object.__setattr__`, and `replace` calls `__init__` again: that
took a fifth of a turn. Type checkers see `dataclasses.dataclass` and `dataclasses.replace` here; nothing checks
immutability at run time. Only `__init__` is compiled per class: compiling the other methods took a fourteenth of the
start-up time.
"""

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:
    T = TypeVar("T")

    def dataclass(cls=None, /, *, frozen=False, eq=True, **options):
        """Like `dataclasses.dataclass`; a frozen one has a hash."""

        def made(cls):
            own, about = set(vars(cls)), cls.__doc__
            cls.__doc__ = cls.__name__  # else `dataclasses` writes the signature there
            value = dataclasses.dataclass(cls, **options, repr=False, eq=False)
            value.__doc__ = about
            for name, method in {"__repr__": _shown, **(_comparing(value, frozen=frozen) if eq else {})}.items():
                if name not in own:
                    setattr(value, name, method)
            return value

        return made if cls is None else made(cls)

    def _shown(value):
        shown = (f"{one.name}={getattr(value, one.name)!r}" for one in dataclasses.fields(value) if one.repr)
        return f"{type(value).__qualname__}({', '.join(shown)})"

    def _comparing(kind, *, frozen):
        names = [one.name for one in dataclasses.fields(kind) if one.compare]
        compared = attrgetter(*names) if names else type

        def equal(value, other):
            return compared(value) == compared(other) if value.__class__ is other.__class__ else NotImplemented

        return {"__eq__": equal, "__hash__": (lambda value: hash(compared(value))) if frozen else None}

    def replace(value: T, /, **changes: Any) -> T:
        """A copy with `changes`, made without `__init__` if the value has a `__dict__`. Raises TypeError for an unknown
        field.
        """
        fields = getattr(value, "__dict__", None)
        if fields is None:
            return dataclasses.replace(value, **changes)
        changed = fields | changes
        if len(changed) > len(fields):
            raise TypeError(f"{type(value).__name__} has no field {', '.join(changes.keys() - fields.keys())}")
        copy = object.__new__(type(value))
        vars(copy).update(changed)
        return copy
