"""What a tokenizer's chat template does with the thinking: the part of detection that looks at the template.

Asks the template through `TokenizerFacts.render` where that works, and through its source where not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .base import PromptState
from .errors import TemplateReadError
from .template_source import Node, read_source
from .template_switches import Observation, Switch, learn_switches, text_state, walked_states
from .template_walk import Walk, walk_template
from .tokenizer_facts import PROBE_TEXT, TokenizerFacts

_WORD = re.compile(r"[^\W\d]\w*")
# A block that something opens: <name>, <|name|>, [NAME] and the like, at the end of a prompt.
_OPENED = re.compile(r"([<\[\u25c1]\|?)([^\s<>\[\]|/\u25c1\u25b7]{2,40})(\|?[>\]\u25b7])\s*$")
_ROLES = frozenset(("assistant", "model", "bot", "ai", "system", "user"))
_NOTHING = Walk((), (), False, (), {}, {})


@dataclass(frozen=True, slots=True)
class MarkerKnowledge:
    """What the template does with one pair of markers.

    Attributes:
        switches: Variables that turn the thinking on and off.
        prompt_state: What a prompt says where no switch is given; None where that is not certain.
    """

    switches: tuple[Switch, ...]
    prompt_state: PromptState | None


class TemplateKnowledge:
    """One chat template.

    Attributes:
        source: Its source, "" where there is none.
        warnings: What could not be read or rendered.
    """

    def __init__(self, facts: TokenizerFacts) -> None:
        self.source, warnings = _pick(facts)
        self._nodes: tuple[Node, ...] | None = None
        self._render = facts.render if self.source else None
        self._rendered: dict[tuple[tuple[str, object], ...], str] = {}
        self._asked: dict[tuple[tuple[str, ...], tuple[str, ...]], MarkerKnowledge] = {}
        try:
            self._nodes = read_source(self.source)
        except TemplateReadError as error:
            warnings.append(f"the chat template's source was not understood: {error}")
        if self._render is not None:
            try:
                self._prompt({})
            except Exception as error:  # Jinja's own errors and whatever the template's author raises
                self._render = None
                warnings.append(f"the chat template cannot be rendered, so its source was read instead: {error}")
        self.warnings = tuple(warnings)
        self._walk = self._find_inputs()

    @property
    def is_readable(self) -> bool:
        """Whether the template can be asked at all."""
        return bool(self.source) and (self._nodes is not None or self._render is not None)

    def mentions(self, text: str) -> bool:
        """Whether the template has this text somewhere."""
        return text in self.source

    def ask(self, starts: tuple[str, ...], ends: tuple[str, ...]) -> MarkerKnowledge:
        """Learn what the template does with these markers."""
        key = (starts, ends)
        if key not in self._asked:
            self._asked[key] = self._learn(starts, ends)
        return self._asked[key]

    def find_opened_block(self) -> tuple[str, str] | None:
        """Return a start marker that the prompt ends with, and its end marker that the template knows; None if there is none."""
        for text in self._tails():
            found = _OPENED.search(text)
            if found is None or found[2].lower() in _ROLES:
                continue
            before, name, after = found.groups()
            for end in (f"{before}/{name}{after}", f"{before[0]}/{before[1:]}{name}{after}", f"{before[0]}{name}{after}"):
                if end != found[0].strip() and self.mentions(end):
                    return found[0].strip(), end
        return None

    def _learn(self, starts: tuple[str, ...], ends: tuple[str, ...]) -> MarkerKnowledge:
        if not self.is_readable:
            return MarkerKnowledge((), None)

        def observe(variables: Mapping[str, object]) -> Observation:
            if self._render is None:
                walk = self._follow(variables)
                return Observation((walk.written, walk.generation), walked_states(walk, starts, ends))
            try:
                prompt = self._prompt(variables)
            except Exception as error:  # a value that the template does not take
                return Observation(repr(error), frozenset(("unknown",)))
            return Observation(prompt, frozenset((text_state(_tail(prompt), starts, ends),)))

        states = observe({}).states
        (state,) = states if len(states) == 1 else (None,)
        return MarkerKnowledge(learn_switches(observe, self._walk), state)

    def _tails(self) -> list[str]:
        """Ends of the prompt with no variable given, and with each Boolean one on."""
        found = []
        for variables in ({}, *({name: True} for name in self._walk.inputs)):
            if self._render is not None:
                try:
                    found.append(_tail(self._prompt(variables)))
                except Exception:
                    continue
            else:
                texts = [part for part in self._follow(variables).generation if isinstance(part, str) and part.strip()]
                found.extend(texts[-1:])
        return found

    def _find_inputs(self) -> Walk:
        """Inputs of the template, those included that it reads only where another one is on."""
        if self._nodes is None:
            words = dict.fromkeys(_WORD.findall(self.source))
            return replace(_NOTHING, inputs=tuple(words))
        walks = [self._follow({})]
        walks += [self._follow({name: True}) for name in walks[0].inputs]
        return replace(
            walks[0],
            inputs=tuple(dict.fromkeys(name for walk in walks for name in walk.inputs)),
            compared={name: values for walk in reversed(walks) for name, values in walk.compared.items()},
            defaults={name: value for walk in reversed(walks) for name, value in walk.defaults.items()},
        )

    def _follow(self, variables: Mapping[str, object]) -> Walk:
        return _NOTHING if self._nodes is None else walk_template(self._nodes, variables)

    def _prompt(self, variables: Mapping[str, object]) -> str:
        assert self._render is not None
        key = tuple(sorted(variables.items()))
        if key not in self._rendered:
            self._rendered[key] = self._render(variables)
        return self._rendered[key]


def _tail(prompt: str) -> str:
    return prompt.rpartition(PROBE_TEXT)[2]


def _pick(facts: TokenizerFacts) -> tuple[str, list[str]]:
    """The template that is used where none is named, and warnings."""
    found = facts.chat_template
    if found is None or isinstance(found, str):
        return found or "", []
    by_name = dict(found) if isinstance(found, Mapping) else {entry["name"]: entry["template"] for entry in found}
    if "default" in by_name:
        return by_name["default"], []
    if len(by_name) == 1:
        return next(iter(by_name.values())), []
    names = ", ".join(sorted(by_name)) or "none"
    return "", [f"the tokenizer has several chat templates and none is called default: {names}"]
