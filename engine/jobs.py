"""What `LLMEngine.generate` is asked for, request by request."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

from .grammar import GrammarSpec
from .request_checks import one_per_prompt
from .sampling_params import SamplingParams


class Job(NamedTuple):
    """One answer to one prompt."""

    prompt: str | SequenceOf[int]
    params: SamplingParams
    grammar: GrammarSpec | None


def plan_jobs(
    prompts: Iterable[str | SequenceOf[int]],
    sampling_params: SamplingParams | SequenceOf[SamplingParams] | None,
    grammars: GrammarSpec | SequenceOf[GrammarSpec | None] | None,
) -> list[Job]:
    """Give each prompt its settings and its grammar, one for all or one each, and as many jobs as it wants answers.

    Raises:
        InvalidRequestError: There are not as many settings, or grammars, as prompts; or `prompts` is one prompt.
    """
    prompts = prompts if isinstance(prompts, (str, bytes)) else list(prompts)
    params = one_per_prompt(prompts, sampling_params, "sampling_params")
    specs = one_per_prompt(prompts, grammars, "grammars")
    return [
        Job(prompt, own, spec)
        for prompt, param, spec in zip(prompts, params, specs, strict=True)
        for own in (param or SamplingParams()).one_each()
    ]
