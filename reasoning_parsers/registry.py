"""Families by name: an immutable registry. The one that everybody uses is in `default_registry.py`.

Knows rows and names, nothing else. Registering gives a new registry, so nothing is ever overwritten and no
module-level state changes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from .errors import DuplicateFamilyError, UnknownFamilyError
from .family import ReasoningFamily

_NUM_NEAR_NAMES = 3


class FamilyRegistry:
    """An immutable table of families, found by name or alias.

    Args:
        families: The rows, in the order in which `list_families` gives them.

    Raises:
        DuplicateFamilyError: Two rows claim one name.
    """

    __slots__ = ("_by_name", "_families")

    def __init__(self, families: Iterable[ReasoningFamily] = ()) -> None:
        self._families = tuple(families)
        self._by_name: Mapping[str, ReasoningFamily] = MappingProxyType(_index(self._families))

    def get_family(self, name: str) -> ReasoningFamily:
        """Return the family of this name or alias; case does not matter, and `-` equals `_`.

        Raises:
            UnknownFamilyError: There is none. The error lists near names.
        """
        key = normalize_name(name)
        family = self._by_name.get(key)
        if family is None:
            near = difflib.get_close_matches(key, self._by_name, n=_NUM_NEAR_NAMES)
            names = tuple(dict.fromkeys(self._by_name[candidate].name for candidate in near))
            known = tuple(row.name for row in self._families)
            raise UnknownFamilyError(name, names, known)
        return family

    def register_family(self, family: ReasoningFamily) -> FamilyRegistry:
        """Return a new registry that also has `family`. Does not change this one.

        Raises:
            DuplicateFamilyError: A name or alias of `family` is taken.
        """
        return FamilyRegistry((*self._families, family))

    def list_families(self) -> tuple[ReasoningFamily, ...]:
        """Return all rows in order of registration."""
        return self._families


def _index(families: tuple[ReasoningFamily, ...]) -> dict[str, ReasoningFamily]:
    by_name: dict[str, ReasoningFamily] = {}
    for family in families:
        # A set: an alias that only spells the name another way is no clash.
        for key in sorted({normalize_name(name) for name in (family.name, *family.aliases)}):
            taken = by_name.setdefault(key, family)
            if taken is not family:
                raise DuplicateFamilyError(key, taken.name, family.name)
    return by_name


def normalize_name(name: str) -> str:
    """Give the form in which names are compared: case does not matter, and `-` equals `_`."""
    return name.strip().lower().replace("-", "_")
