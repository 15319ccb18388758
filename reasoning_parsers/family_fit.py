"""How well one row fits a tokenizer, with reasons: the part of detection that looks at a row."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass

from .detection_hints import FAMILIES_BY_MODEL_TYPE
from .errors import MarkerError
from .family import ReasoningFamily
from .template_knowledge import TemplateKnowledge
from .template_switches import Switch
from .tokenizer_facts import TokenizerFacts


@dataclass(frozen=True, slots=True)
class Fit:
    """A row whose markers are here.

    Attributes:
        family: The row as it stands in the table.
        learned: The row with the switches and defaults of the template.
        score: More is better; only comparable for one tokenizer.
        evidence: What speaks for and against it, one sentence each.
        is_complete: Whether nothing speaks against it.
    """

    family: ReasoningFamily
    learned: ReasoningFamily
    score: float
    evidence: tuple[str, ...]
    is_complete: bool = True


class _Score:
    def __init__(self) -> None:
        self.value = 0.0
        self.reasons: list[str] = []
        self.is_complete = True

    def add(self, value: float, reason: str = "") -> None:
        self.value += value
        self.is_complete &= value >= 0
        if reason:
            self.reasons.append(reason)


def fit_family(family: ReasoningFamily, facts: TokenizerFacts, template: TemplateKnowledge) -> Fit | None:
    """Say how well a row fits; None if its markers are neither in the vocabulary nor in the chat template."""
    if family.reads_response_template:
        # Its markers are those of the tokenizer's response template, which is read by itself.
        return None
    try:
        row = family.for_vocabulary(facts.added_tokens)
    except MarkerError:
        return None
    start = _find_marker(row.starts, facts, template)
    end = _find_marker(row.ends, facts, template)
    if start is None or end is None:
        return None
    score = _Score()
    score.add(start[0] + end[0], f"markers: {start[1]}, {end[1]}")
    _add_model(row, facts, score)
    _add_tokens(row, facts, score)
    learned = learn_row(row, template)
    _add_template(row, learned, template, score)
    return Fit(family, learned, score.value, tuple(score.reasons), score.is_complete)


def found_tokens(texts: Iterable[str], facts: TokenizerFacts) -> tuple[str, ...]:
    """Those of the texts that are a token here, or hold an added token."""
    return tuple(text for text in texts if facts.find_token(text) is not None or facts.find_tokens_within(text))


def _find_marker(texts: tuple[str, ...], facts: TokenizerFacts, template: TemplateKnowledge) -> tuple[float, str] | None:
    """Points for a marker and where it is; the best of its spellings."""
    found: list[tuple[float, str]] = []
    for text in texts:
        token_id = facts.find_token(text)
        is_mentioned = template.mentions(text)
        said = " and stands in the chat template" if is_mentioned else ""
        if token_id is not None:
            found.append((2 + is_mentioned / 2, f"{text!r} is token {token_id}{said}"))
        elif within := facts.find_tokens_within(text):
            found.append((2 + is_mentioned / 2, f"{text!r} is made of {_list(within)}{said}"))
        elif is_mentioned:
            found.append((1.5, f"{text!r} is text of several tokens that stands in the chat template"))
    return max(found, default=None)


def _add_model(row: ReasoningFamily, facts: TokenizerFacts, score: _Score) -> None:
    model_type = facts.model_config.get("model_type")
    names = FAMILIES_BY_MODEL_TYPE.get(model_type, ()) if isinstance(model_type, str) else ()
    if row.name in names:
        score.add(3, f"the model's type is {model_type}")
    elif names:
        score.add(-2, f"the model's type is {model_type}, which is {' or '.join(names)} as a rule")
    path = facts.model_config.get("_name_or_path")
    # Of a path the last part only: what the folders above are called says nothing.
    name = re.split(r"[/\\]", path.rstrip("/\\"))[-1] if isinstance(path, str) else ""
    if any(is_named(alias, name) for alias in (row.name, *row.aliases)):
        score.add(2, f"the model is called {name}")


def _add_tokens(row: ReasoningFamily, facts: TokenizerFacts, score: _Score) -> None:
    turns = found_tokens(row.turn_boundaries, facts)
    if turns:
        # A row may list the tokens of several tokenizers, of which one has some. The share breaks ties.
        share = len(turns) / len(row.turn_boundaries)
        score.add(min(len(turns), 2) + share / 2 + len(turns) / 100, f"turns: {_list(turns)}")
    elif row.turn_boundaries:
        score.add(-1, f"none of its turn tokens is here: {_list(row.turn_boundaries)}")
    if row.channels is not None:
        texts = (*row.channels.openers, row.channels.header_end, *row.channels.closers)
        found = found_tokens(filter(None, texts), facts)
        share = len(found) / len(texts)
        score.add(2 * share if share > 0.5 else -1, f"tokens of its messages: {_list(found) or 'none'}")
    ends = found_tokens(row.implicit_ends, facts)
    if ends:
        score.add(len(ends) / len(row.implicit_ends), f"tool openers: {_list(ends)}")


def learn_row(row: ReasoningFamily, template: TemplateKnowledge) -> ReasoningFamily:
    """Give the row with the switches and defaults of the template; the row itself where there is no template to ask."""
    if not template.is_readable:
        return row
    knowledge = template.ask(row.starts, row.ends)
    switch = _pick_switch(row, knowledge.switches)
    opens = row.template_opens if knowledge.prompt_state is None else knowledge.prompt_state == "open"
    if switch is None:
        return dataclasses.replace(
            row, template_opens=opens, thinking_switch=None, other_switches=(), switch_on=True, switch_off=False
        )
    return dataclasses.replace(
        row,
        template_opens=opens,
        thinking_switch=switch.name,
        other_switches=tuple(other.name for other in knowledge.switches if _is_like(other, switch)),
        switch_on=switch.on,
        switch_off=switch.off,
        thinking_default=switch.default,
    )


def _add_template(row: ReasoningFamily, learned: ReasoningFamily, template: TemplateKnowledge, score: _Score) -> None:
    if not template.source:
        score.add(0, "there is no chat template to look at")
    if not template.is_readable:
        return
    wanted = (row.thinking_switch, *row.other_switches)
    if learned.thinking_switch is None:
        score.add(0.5 if row.thinking_switch is None else -0.5, "the chat template has no switch for the thinking")
    else:
        values = f"{learned.switch_on!r}, {learned.switch_off!r}; {'on' if learned.thinking_default else 'off'} by default"
        is_wanted = learned.thinking_switch in wanted
        score.add(1 if is_wanted else -0.5, f"{learned.thinking_switch} switches the thinking: {values}")
    reason = "the prompt opens the thinking" if learned.template_opens else ""
    score.add(0.25 if learned.template_opens == row.template_opens else 0, reason)


def _pick_switch(row: ReasoningFamily, switches: tuple[Switch, ...]) -> Switch | None:
    """The switch that the row names, else the first that the template has."""
    by_name = {switch.name: switch for switch in switches}
    wanted = (row.thinking_switch, *row.other_switches)
    return next((by_name[name] for name in wanted if name in by_name), next(iter(switches), None))


def _is_like(other: Switch, switch: Switch) -> bool:
    return other != switch and dataclasses.replace(other, name=switch.name) == switch


def is_named(name: str, model: str) -> bool:
    """Whether the parts of a model's name hold a family's: `GLM-4.5-Air` holds `glm45`; `akimichi` does not hold `kimi`.

    Letters and digits are parts of their own where the name ends: `qwen3vl` holds `qwen3`, and `dotsocr` not `dots`.
    """
    letters = [character for character in name.lower() if character.isalnum()]
    same_kind = r"\d" if letters[-1].isdigit() else r"[^\W\d_]"
    spelled = r"[\W_]*".join(letters)
    return re.search(rf"(?<![^\W_]){spelled}(?!{same_kind})", model.lower()) is not None


def _list(texts: Iterable[str]) -> str:
    return ", ".join(texts)
