"""The registry that everybody uses who names no other: the families that ship, and those of installed distributions."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from .family import ReasoningFamily
from .family_sources import build_registry, read_entry_points, read_families
from .registry import FamilyRegistry


@cache
def installed_registry() -> FamilyRegistry:
    """Return the families that ship and those that installed distributions bring; looked up once in a process.

    Raises:
        FamilySourceError: An entry point cannot be loaded.
        DuplicateFamilyError: Two rows claim one name; names both places.
    """
    return build_registry(read_entry_points())


def load_registry(path: str | Path) -> FamilyRegistry:
    """Return the installed families together with those of a TOML or JSON file.

    Raises:
        FamilySourceError: The file cannot be read, or a row in it is wrong; with the file and the line or key.
        DuplicateFamilyError: Two rows claim one name; names both places.
    """
    return build_registry(read_entry_points(), read_families(path))


def get_family(name: str) -> ReasoningFamily:
    """Return an installed family. See `FamilyRegistry.get_family`."""
    return installed_registry().get_family(name)


def register_family(family: ReasoningFamily) -> FamilyRegistry:
    """Return the installed families plus one; nothing else changes.

    A family can also be passed directly wherever a name is taken.

    Raises:
        DuplicateFamilyError: A name or alias of `family` is taken.
    """
    return installed_registry().register_family(family)


def list_families() -> tuple[ReasoningFamily, ...]:
    """Return the installed rows."""
    return installed_registry().list_families()
