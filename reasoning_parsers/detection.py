"""Find the reasoning family of a tokenizer: from its chat template, its added tokens and the model's configuration.

Knows facts (`tokenizer_facts.py`), no tokenizer library. The chat template's source is read, never run here; a caller that can
render it safely gives `render`, and then the switches are learned from real prompts. In order: which rows have their markers here
(`family_fit.py`), what the template does with them (`template_knowledge.py`), which row fits best. Nothing is guessed in silence:
see `Detection.confidence` and `Detection.warnings`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .base import PromptState
from .default_registry import list_families
from .family import ReasoningFamily
from .family_fit import Fit, fit_family, found_tokens, learn_row
from .shipped_markers import read_response_template
from .template_knowledge import TemplateKnowledge
from .template_switches import Switch
from .tokenizer_facts import TokenizerFacts

Confidence = Literal["certain", "likely", "guess"]
"""`certain`: all that was found says so, and no row that acts otherwise comes near. `likely`: the best fit, but something is
missing. `guess`: another row fits as well, or little was found; `Detection.warnings` says what to do."""

_CHOOSE = "name the family yourself (family=..., or --family), or write a row for the model (docs/own_families.md)"
_NUM_NAMES = 3
_CLOSE = 0.5
"""Scores that are nearer than this are a tie."""
_LOOKS_LIKE_THINKING = re.compile(r"think|thought|reason", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What was found, and why.

    Attributes:
        family: The row, with the switches and defaults that the template has; None for a model that does not think.
        confidence: How sure that is.
        evidence: What speaks for it, one sentence each.
        warnings: What the user should know or do, one sentence each.
        switches: Variables of the template that turn the thinking on and off, the family's first.
        prompt_state: What a prompt says where no switch is given; None where that is not known.
        alike: Names of further rows that fit and would act in the same way.
    """

    family: ReasoningFamily | None
    confidence: Confidence
    evidence: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    prompt_state: PromptState | None = None
    alike: tuple[str, ...] = ()


def detect_family(facts: TokenizerFacts, families: Iterable[ReasoningFamily] | None = None) -> Detection:
    """Find the family of a tokenizer. A template that cannot be read or rendered is a warning, no error.

    Args:
        facts: What is known of the tokenizer and its model.
        families: The rows to choose from; None takes the installed ones. Of rows that fit equally well the first counts.
    """
    template = TemplateKnowledge(facts)
    shipped = read_response_template(facts.response_template)
    warnings = (*template.warnings, *shipped.warnings)
    rows = tuple(list_families() if families is None else families)
    fits = [fit for row in rows if (fit := fit_family(row, facts, template)) is not None]
    if shipped.family is not None:
        fits = _keep_to_shipped(fits, shipped.family, facts, template)
    return _choose(fits, facts, template, warnings) if fits else _nothing_fits(facts, template, warnings)


def teach_family(family: ReasoningFamily, facts: TokenizerFacts) -> Detection:
    """Learn the switches and defaults of a family that the user named from the template; no other row is looked at.

    A row whose markers are the tokenizer's own (`reads_response_template`) gets them from its response template.
    """
    template = TemplateKnowledge(facts)
    if family.reads_response_template:
        shipped = read_response_template(facts.response_template)
        family = shipped.family or family
    fit = fit_family(family, facts, template)
    if fit is None:
        markers = f"{family.start!r} and {family.end!r}"
        warning = f"neither the vocabulary nor the chat template has the markers {markers} of {family.name}"
        learned = learn_row(family, template)
        return Detection(family=learned, confidence="certain", warnings=(*template.warnings, warning))
    return _describe(fit, "certain", template, template.warnings, ())


def _choose(fits: list[Fit], facts: TokenizerFacts, template: TemplateKnowledge, warnings: tuple[str, ...]) -> Detection:
    best = max(fits, key=lambda fit: fit.score)
    plain = _plain(best, facts)
    alike = [fit for fit in fits if fit is not best and _plain(fit, facts) == plain]
    others = [fit for fit in fits if fit is not best and fit not in alike]
    near = [fit.family.name for fit in others if fit.score > best.score - _CLOSE]
    is_mentioned = not template.source or any(template.mentions(text) for text in (*best.learned.starts, *best.learned.ends))
    confidence: Confidence = "certain" if best.is_complete and template.is_readable else "likely"
    if near:
        confidence = "guess"
        names = ", ".join(near[:_NUM_NAMES]) + (f" and {len(near) - _NUM_NAMES} more" if len(near) > _NUM_NAMES else "")
        rivals = f"{names} would fit as well as {best.family.name}, and act otherwise"
        warnings += (f"the family is a guess: {rivals}; {_CHOOSE}",)
    elif not is_mentioned:
        confidence = "guess"
        silent = f"the vocabulary has {best.learned.start}, but the chat template never mentions it"
        warnings += (f"{silent}, so the model may not think at all; if so, set family to none",)
    return _describe(best, confidence, template, warnings, tuple(fit.family.name for fit in alike))


def _describe(
    best: Fit, confidence: Confidence, template: TemplateKnowledge, warnings: tuple[str, ...], alike: tuple[str, ...]
) -> Detection:
    knowledge = template.ask(best.learned.starts, best.learned.ends)
    also = (f"these rows would act in the same way: {', '.join(alike)}",) if alike else ()
    return Detection(
        family=best.learned,
        confidence=confidence,
        evidence=(*best.evidence, *also),
        warnings=warnings,
        switches=tuple(sorted(knowledge.switches, key=lambda switch: switch.name != best.learned.thinking_switch)),
        prompt_state=knowledge.prompt_state,
        alike=alike,
    )


def _plain(fit: Fit, facts: TokenizerFacts) -> ReasoningFamily:
    """The row as it acts here: without its names, and without tokens that this vocabulary has not."""
    row = fit.learned
    turns = found_tokens(row.turn_boundaries, facts)
    return dataclasses.replace(
        row,
        name="row",
        aliases=(),
        source="",
        checked="",
        note="",
        is_second_hand=False,
        turn_boundaries=tuple(sorted(turns)),
        user_turns=tuple(sorted(text for text in row.user_turns if text.startswith(turns))),
        implicit_ends=tuple(sorted(found_tokens(row.implicit_ends, facts))),
        other_switches=(),
        thinking_default=row.thinking_default if row.thinking_switch is not None else True,
    )


def _keep_to_shipped(fits: list[Fit], shipped: ReasoningFamily, facts: TokenizerFacts, template: TemplateKnowledge) -> list[Fit]:
    """Rows that agree with the tokenizer's own response template; where none does, the template is the row."""
    agreeing = [fit for fit in fits if shipped.start in fit.learned.starts and shipped.end in fit.learned.ends]
    reason = "the tokenizer's response template has these markers"
    if not agreeing:
        own = fit_family(shipped, facts, template)
        agreeing = [own or Fit(shipped, shipped, 0.0, (), is_complete=False)]
    return [dataclasses.replace(fit, evidence=(reason, *fit.evidence)) for fit in agreeing]


def _nothing_fits(facts: TokenizerFacts, template: TemplateKnowledge, warnings: tuple[str, ...]) -> Detection:
    block = template.find_opened_block()
    if block is not None:
        start, end = block
        warning = (
            f"the chat template opens {start} and no family has that marker, so this model counts as one that does not think; "
            f"write a row with start = {start!r} and end = {end!r} into a file and give it with --families (docs/own_families.md)"
        )
        return Detection(family=None, confidence="guess", warnings=(*warnings, warning))
    tokens = sorted(token for token in facts.added_tokens if _LOOKS_LIKE_THINKING.search(token))
    if tokens:
        warning = f"tokens look like thinking markers and belong to no family: {', '.join(tokens[:_NUM_NAMES])}; {_CHOOSE}"
        return Detection(family=None, confidence="guess", warnings=(*warnings, warning))
    evidence = ["the vocabulary has no family's markers"]
    if template.source:
        evidence.append("the chat template has no family's markers and opens no block")
    return Detection(
        family=None, confidence="certain" if template.is_readable else "likely", evidence=tuple(evidence), warnings=warnings
    )
