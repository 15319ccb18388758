"""Which variables of a chat template switch the thinking, learned by trying: what does the prompt look like with this value?

Whoever asks gives an `Observer`: it renders the template, or follows its source (`template_walk.py`), for given variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .base import PromptState
from .template_walk import Part, Walk

_NAME = re.compile(r"think|reason|effort", re.IGNORECASE)
_OFF_WORDS = ("none", "off", "disabled", "disable", "no_think", "nothink", "false", "no")
_ON_WORDS = ("high", "enabled", "on", "medium", "low")
ANYTHING: frozenset[PromptState] = frozenset(("ended", "open", "unknown"))


class Observation(NamedTuple):
    """How a prompt came out.

    Attributes:
        text: Equal for equal prompts; nothing else is known of it.
        states: What the prompt may say of the thinking; one state where that is certain.
    """

    text: Hashable
    states: frozenset[PromptState]


Observer = Callable[[Mapping[str, object]], Observation]


@dataclass(frozen=True, slots=True)
class Switch:
    """A variable of a chat template that turns the thinking on and off.

    Attributes:
        name: Of the variable.
        on: Value that turns it on.
        off: Value that turns it off.
        default: Whether it is on where the variable is not given.
    """

    name: str
    on: bool | str
    off: bool | str
    default: bool


def learn_switches(observe: Observer, walk: Walk) -> tuple[Switch, ...]:
    """Try the variables whose names speak of thinking; those that change nothing are no switches."""
    base = observe({})
    found = []
    for name in walk.inputs:
        if not _NAME.search(name):
            continue
        words = _words(name, walk)
        switch = _try_words(observe, base, name, words) if words else _try_booleans(observe, base, name)
        if switch is not None:
            found.append(switch)
    return tuple(found)


def prompt_states(parts: Iterable[Part], starts: Iterable[str], ends: Iterable[str]) -> frozenset[PromptState]:
    """What the parts of a prompt may say of the thinking: the last marker decides."""
    markers: list[tuple[str, PromptState]] = [(marker, "open") for marker in starts]
    markers += [(marker, "ended") for marker in ends]
    return _fold(tuple(parts), markers, frozenset(("unknown",)))


def walked_states(walk: Walk, starts: Iterable[str], ends: Iterable[str]) -> frozenset[PromptState]:
    """`prompt_states` of the generation prompt; all of them where the template does not ask for one."""
    return prompt_states(walk.generation, starts, ends) if walk.asks_for_generation_prompt else ANYTHING


def text_state(text: str, starts: Iterable[str], ends: Iterable[str]) -> PromptState:
    """What a text says of the thinking: the last marker decides."""
    (state,) = prompt_states((text,), starts, ends)
    return state


def _fold(
    parts: tuple[Part, ...], markers: list[tuple[str, PromptState]], states: frozenset[PromptState]
) -> frozenset[PromptState]:
    run = ""
    for part in parts:
        if isinstance(part, str):
            run += part
            continue
        states, run = _after(run, markers, states), ""
        if part is None:
            states = ANYTHING  # text that is not known may hold a marker
        else:
            states = frozenset(state for way in part.ways for state in _fold(way, markers, states))
    return _after(run, markers, states)


def _after(text: str, markers: list[tuple[str, PromptState]], states: frozenset[PromptState]) -> frozenset[PromptState]:
    found = [(text.rfind(marker) + len(marker), len(marker), state) for marker, state in markers if marker in text]
    return frozenset((max(found)[2],)) if found else states


def _words(name: str, walk: Walk) -> tuple[str, ...]:
    """Texts that the template compares the variable with, its default first."""
    default = walk.defaults.get(name)
    values = (default, *walk.compared.get(name, ()))
    return tuple(dict.fromkeys(value for value in values if isinstance(value, str) and value))


def _try_booleans(observe: Observer, base: Observation, name: str) -> Switch | None:
    tried = {value: observe({name: value}) for value in (True, False)}
    if tried[True].text == tried[False].text:
        return None
    is_inverted = _is(tried[True], "ended") > _is(tried[False], "ended") or _is(tried[False], "open") > _is(tried[True], "open")
    on, off = not is_inverted, is_inverted
    return Switch(name, on, off, _is_default(base, tried[on], tried[off]))


def _try_words(observe: Observer, base: Observation, name: str, words: tuple[str, ...]) -> Switch | None:
    tried = {word: observe({name: word}) for word in dict.fromkeys((*words, *_ON_WORDS, *_OFF_WORDS))}
    for off in dict.fromkeys((*(word for word in words if word.lower() in _OFF_WORDS), *words, *_OFF_WORDS)):
        # A word that the template does not know, or that only says how much to think, must be seen to end the thinking.
        is_named = off in words and off.lower() in _OFF_WORDS
        others = [
            word
            for word in dict.fromkeys((*words, *_ON_WORDS))
            if word.lower() not in _OFF_WORDS
            and tried[word].text != tried[off].text
            and (is_named or (tried[word].states != tried[off].states and not _is(tried[off], "open")))
        ]
        if others:
            on = max(others, key=lambda word: (_is(tried[word], "open"), tried[word].text == base.text))
            return Switch(name, on, off, _is_default(base, tried[on], tried[off]))
    return None


def _is(observation: Observation, state: PromptState) -> bool:
    return observation.states == frozenset((state,))


def _is_default(base: Observation, on: Observation, off: Observation) -> bool:
    if base.text in (on.text, off.text):
        return base.text == on.text
    return base.states != off.states
