"""The conversation after an answer that was no good: what was wrong is told, and the model is asked again.

Knows nothing about when to ask again (`generation.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .attempt import FailedAttempt

_MAX_QUOTED = 20_000


def build_reask(messages: Sequence[Mapping[str, Any]], failed: FailedAttempt) -> tuple[Mapping[str, Any], ...]:
    """Return the conversation for another attempt: the caller's messages, the last answer, and what was wrong with it.

    Earlier failures are left out, so that the prompt does not grow with each attempt. An empty answer adds no assistant turn: the
    note then joins the last user message, since many chat templates refuse two in a row.
    """
    note = _note(failed)
    if failed.raw_content.strip():
        answer = {"role": "assistant", "content": failed.raw_content[:_MAX_QUOTED]}
        return (*messages, answer, {"role": "user", "content": note})
    last = messages[-1]
    if last["role"] == "user" and isinstance(last.get("content"), str):
        return (*messages[:-1], {**last, "content": f"{last['content']}\n\n{note}"})
    return (*messages, {"role": "user", "content": note})


def _note(failed: FailedAttempt) -> str:
    if failed.problems[0].kind == "missing":
        return "Your last reply held no answer. Think briefly, then give the answer."
    how = " and nothing else" if failed.problems[0].kind == "text" else ", as JSON and nothing else"
    problems = "\n".join(f"- {problem}" for problem in failed.problems)
    return f"Your last answer was not valid:\n{problems}\nGive the whole answer again, corrected{how}."
