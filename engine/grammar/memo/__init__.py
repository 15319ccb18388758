"""Masks that are kept per state of an answer, so that a state met before costs a copy."""
