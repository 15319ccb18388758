"""Find the JSON answer in text that nothing forced to be JSON: fences and sentences around it are set aside.

Only what stands around the answer is removed. The answer itself is never changed: broken JSON stays broken.
"""

from __future__ import annotations

import json
import re

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*(?:json[c5]?|JSON)?[ \t]*\r?\n", re.MULTILINE)
_FENCE_END = re.compile(r"\n[ \t]*(?:```|~~~)[ \t]*(?:\r?\n|$)")
_DECODER = json.JSONDecoder()


def extract_answer(content: str) -> str:
    """Return the part of `content` that is the answer.

    In order: the whole text, if it begins like JSON; the inside of the only code fence (an unclosed one ends with the text); the
    one object or array after a sentence. Where two answers could be meant, the text is returned as it is and judged as a whole.
    """
    text = content.strip()
    if _begins_like_json(text):
        return _without_loose_fence(text)
    fenced = _fenced_parts(text)
    if len(fenced) == 1:
        return fenced[0]
    return text if fenced else _embedded_value(text)


def answer_start(content: str) -> int | None:
    """Where an answer that is still being written begins, None if that cannot be told yet."""
    stripped = content.lstrip()
    if not stripped:
        return None
    if _begins_like_json(stripped):
        return len(content) - len(stripped)
    opening = _FENCE.search(content)
    return opening.end() if opening else None


def _begins_like_json(text: str) -> bool:
    return text[:1] in ("{", "[", '"') or bool(re.fullmatch(r"-?\d\S*|true|false|null", text))


def _without_loose_fence(text: str) -> str:
    # A closing fence without an opening one, as from an answer that a prefix began.
    return text[:-3].rstrip() if text.endswith(("```", "~~~")) else text


def _fenced_parts(text: str) -> list[str]:
    parts = []
    position = 0
    while opening := _FENCE.search(text, position):
        closing = _FENCE_END.search(text, opening.end() - 1)
        parts.append(text[opening.end() : closing.start() if closing else len(text)].strip())
        position = closing.end() if closing else len(text)
    return parts


def _embedded_value(text: str) -> str:
    start = re.search(r"[{\[]", text)
    if start is None:
        return text
    try:
        _, end = _DECODER.raw_decode(text, start.start())
    except (ValueError, RecursionError):
        return text
    rest = text[end:]
    return text if re.search(r"[{\[]", rest) else text[start.start() : end]
