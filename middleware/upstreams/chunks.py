"""What servers call thinking, and where they put it, read into two texts.

Fields seen in the wild: `reasoning_content` (DeepSeek, SGLang, llama.cpp), `reasoning` (vLLM, Ollama, Groq, OpenRouter),
`thinking` (litellm#20737), `thinking_blocks` (Anthropic through litellm), `reasoning_details` (OpenRouter), and content as a list
of parts (Mistral). litellm drops what is not of the first two, so chunks are put straight before it reads them: `ChunkTap`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from ..result import IMPOSSIBLE, TokenLogprob
from .error_document import ErrorDocument

_FIELDS = ("reasoning_content", "reasoning", "thinking")
_PART_FIELDS = ("thinking_blocks", "reasoning_details")
# litellm takes a finish reason that it does not know for `stop`.
_LENGTH_REASONS = frozenset({"model_length", "max_length", "max_output_tokens"})
_TEXT_FIELDS = ("text", "thinking", "content", "summary")
_THINKING_TYPES = frozenset({"thinking", "reasoning", "reasoning_content"})


def get(item: Any, name: str) -> Any:
    """Read a field of a mapping or an object, None if it is not there."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def read_delta(delta: Any) -> tuple[str, str]:
    """Return thinking and answer text of one delta. The same thinking in two fields counts once."""
    in_parts, content = _read_content(get(delta, "content"))
    for name in _FIELDS:
        if text := _join_text(get(delta, name)):
            return text, content
    return in_parts or next((text for name in _PART_FIELDS if (text := _join_text(get(delta, name)))), ""), content


def read_logprobs(logprobs: Any) -> tuple[TokenLogprob, ...]:
    """Read OpenAI's `logprobs` of a choice; nothing where there are none."""
    return tuple(map(_read_logprob, get(logprobs, "content") or ()))


def _read_logprob(item: Any) -> TokenLogprob:
    data = get(item, "bytes")
    top = tuple(map(_read_logprob, get(item, "top_logprobs") or ()))
    logprob = get(item, "logprob")
    value = IMPOSSIBLE if logprob is None else float(logprob)  # servers send null for minus infinity
    return TokenLogprob(str(get(item, "token")), value, None if data is None else bytes(data), top)


def _read_content(content: Any) -> tuple[str, str]:
    if not isinstance(content, list):
        return "", content if isinstance(content, str) else ""
    thinking = [part for part in content if get(part, "type") in _THINKING_TYPES]
    return _join_text(thinking), _join_text([part for part in content if part not in thinking])


def _join_text(value: Any) -> str:
    """Text of a string, of a part (`text`, `thinking`, `content`, `summary`), or of a list of either."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_join_text, value))
    if value is None:
        return ""
    return next((text for name in _TEXT_FIELDS if (text := _join_text(get(value, name)))), "")


class ChunkTap:
    """Sits between the server's chunks and litellm, and moves what litellm would drop to where it looks.

    Attributes:
        refusal: Text of the model's refusal so far; litellm drops that too.
    """

    def __init__(self) -> None:
        self.refusal = ""
        self._num_choices = 0
        self._has_finish_reason = False
        self._has_usage = False
        self._has_reasoning_count = False

    @property
    def is_cut_off(self) -> bool:
        """Whether the server's stream ended without a finish reason. litellm would make one up."""
        return self._num_choices > 0 and not self._has_finish_reason

    @property
    def lacks_usage(self) -> bool:
        """Whether the server sent no token counts. litellm would make them up."""
        return self._num_choices > 0 and not self._has_usage

    @property
    def lacks_reasoning_count(self) -> bool:
        """Whether the server did not count the thinking apart. litellm would make that up, too."""
        return self._num_choices > 0 and not self._has_reasoning_count

    def install(self, response: Any) -> None:
        """Put the tap into a litellm stream. Changes `response`; a stream of another make is left alone."""
        stream: Any = getattr(response, "completion_stream", None)
        if hasattr(stream, "chunk_parser"):
            parse = stream.chunk_parser
            stream.chunk_parser = lambda chunk: parse(chunk=self.straighten(chunk))
        elif hasattr(stream, "__anext__"):
            response.completion_stream = _AsyncTapped(stream, self)
        elif hasattr(stream, "__next__"):
            response.completion_stream = _Tapped(stream, self)

    def straighten(self, chunk: Any) -> Any:
        """Move thinking into `reasoning_content` and text parts into one string. Changes the chunk and returns it."""
        if usage := get(chunk, "usage"):
            self._has_usage = True
            details = get(usage, "completion_tokens_details") or usage
            self._has_reasoning_count |= get(details, "reasoning_tokens") is not None
        for choice in get(chunk, "choices") or ():
            self._num_choices += 1
            reason = get(choice, "finish_reason")
            self._has_finish_reason |= bool(reason)
            if reason in _LENGTH_REASONS:
                _put(choice, "finish_reason", "length")
            delta = get(choice, "delta")
            if delta is not None:
                self.refusal += _join_text(get(delta, "refusal"))
                self._straighten_delta(delta)
        return chunk

    def _straighten_delta(self, delta: Any) -> None:
        has_parts = isinstance(get(delta, "content"), list)
        if not has_parts and not any(get(delta, name) for name in ("thinking", "reasoning_details")):
            return
        reasoning, content = read_delta(delta)
        if reasoning:
            _put(delta, "reasoning_content", reasoning)
        if has_parts:
            _put(delta, "content", content or None)


def _put(item: Any, name: str, value: Any) -> None:
    if isinstance(item, dict):
        item[name] = value
    else:
        setattr(item, name, value)


class _Tapped:
    def __init__(self, stream: Any, tap: ChunkTap) -> None:
        self._stream, self._tap = stream, tap
        self._document = ErrorDocument.of(stream)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._document is not None:
            document, self._document = self._document, None
            document.check(document.response.read())
        return self._tap.straighten(next(self._stream))

    def close(self) -> None:
        self._stream.close()


class _AsyncTapped:
    def __init__(self, stream: Any, tap: ChunkTap) -> None:
        self._stream, self._tap = stream, tap
        self._document = ErrorDocument.of(stream)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._document is not None:
            document, self._document = self._document, None
            document.check(await document.response.aread())
        return self._tap.straighten(await anext(self._stream))

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None) or self._stream.close
        await close()
