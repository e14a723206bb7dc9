"""Values: dataclasses that type checkers treat as frozen, and that cost no more to make than plain ones.

`dataclasses` sets each field of a frozen value through `object.__setattr__`, and `replace` calls `__init__` again: that
took a fifth of a turn. Here type checkers alone refuse to change a value: they see `dataclasses.dataclass` and
`dataclasses.replace` in place of these. Nothing checks it at run time.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:
    T = TypeVar("T")

    def dataclass(cls=None, /, *, frozen=False, **options):
        """`dataclasses.dataclass`; one that is declared frozen has a hash."""

        def made(cls):
            hashed = frozen and "__hash__" not in vars(cls)
            return dataclasses.dataclass(cls, **options, unsafe_hash=hashed)

        return made if cls is None else made(cls)

    def replace(value: T, /, **changes: Any) -> T:
        """A copy with `changes`; quick, and without `__post_init__`, where the value has a `__dict__`. Raises TypeError
        for an unknown field.
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
