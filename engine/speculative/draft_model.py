"""Drafts from a smaller model with the same vocabulary: it runs some tokens ahead, greedily, for all decoding sequences."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..attention import Chunk
from ..config import EngineConfig
from ..errors import ModelLoadError
from ..kv_cache import BlockTable
from ..kv_cache_size import make_kv_cache
from ..model_loader import LoadedModel, load_model
from ..model_runner import ModelRunner


class DraftedSequence(Protocol):
    """What the draft model needs of a sequence."""

    @property
    def request_id(self) -> str:
        """Its name; the same until `forget`."""
        ...

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens."""
        ...

    def token_ids_between(self, start: int, stop: int) -> list[int]:
        """Give the ids at positions `start` to `stop - 1`."""
        ...


@dataclass(slots=True)
class _Shadow:
    """The draft model's own state of a sequence; its tokens end with what was drafted last."""

    token_ids: list[int] = field(default_factory=list)
    num_cached_tokens: int = 0
    blocks: BlockTable = field(default_factory=BlockTable)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    def token_ids_between(self, start: int, stop: int) -> list[int]:
        return self.token_ids[start:stop]


class DraftModel:
    """Runs ahead of the engine's model.

    Args:
        config: The engine's settings; `draft_model` is the model to load.
        target: The engine's model.

    Raises:
        ModelLoadError: The draft model cannot be loaded, or its tokens are not the target's.
    """

    def __init__(self, config: EngineConfig, target: LoadedModel) -> None:
        assert config.draft_model is not None
        loaded = load_model(replace(config, model=config.draft_model, max_model_len=None, kv_cache_bytes=None))
        if loaded.tokenizer.get_vocab() != target.tokenizer.get_vocab():
            raise ModelLoadError(
                f"the vocabulary of {config.draft_model!r} is not that of {config.model!r}",
                hint="a draft model must have the same tokenizer",
            )
        # No sequence is longer than the target's.
        loaded = replace(loaded, max_model_len=min(loaded.max_model_len, target.max_model_len))
        self._max_model_len = loaded.max_model_len
        self._vocab_size = min(loaded.vocab_size, target.vocab_size)
        own_config = replace(config, max_model_len=None, kv_cache_bytes=None)
        self._kv_cache = make_kv_cache(own_config, loaded, prefix_caching=False, beside=target)
        self._runner = ModelRunner(loaded, self._kv_cache)
        self._shadows: dict[str, _Shadow] = {}

    def propose(self, sequences: Sequence[DraftedSequence], limit: int) -> dict[str, list[int]]:
        """Give up to `limit` drafts by request id; sequences for which there is no room get none."""
        live = [shadow for sequence in sequences if (shadow := self._follow(sequence, limit)) is not None]
        if not live or limit <= 0:
            return {}
        num_given = {id(shadow): shadow.num_tokens for shadow in live}
        for _ in range(limit):
            chunks = [Chunk(shadow, shadow.num_tokens - shadow.num_cached_tokens) for shadow in live]
            token_ids: list[int] = self._runner.run(chunks)[:, : self._vocab_size].float().argmax(dim=-1).tolist()
            for shadow, token_id in zip(live, token_ids, strict=True):
                shadow.token_ids.append(token_id)
        found = {id(shadow): shadow.token_ids[num_given[id(shadow)] :] for shadow in live}
        shadows = ((sequence.request_id, self._shadows.get(sequence.request_id)) for sequence in sequences)
        return {request_id: found[id(shadow)] for request_id, shadow in shadows if shadow is not None and id(shadow) in found}

    def num_behind(self, sequence: DraftedSequence) -> int:
        """Give the tokens of a sequence, about, that this model has not computed yet; does not change state."""
        shadow = self._shadows.get(sequence.request_id)
        return sequence.num_tokens - (0 if shadow is None else min(shadow.num_cached_tokens, sequence.num_tokens))

    def catch_up(self, sequences: Iterable[DraftedSequence], num_tokens: int) -> int:
        """Compute tokens that sequences have already, those of the first ones first; `propose` computes what is left.

        Args:
            sequences: Those to follow.
            num_tokens: Tokens to compute, at most.

        Returns:
            Tokens that were computed; 0 where there is no room for any of them.
        """
        chunks: list[Chunk] = []
        num_left = num_tokens
        for sequence in sequences:
            shadow = self._follow(sequence, 0) if num_left > 0 else None
            # The last token waits for `propose`, which wants its logits.
            count = 0 if shadow is None else min(num_left, shadow.num_tokens - 1 - shadow.num_cached_tokens)
            if shadow is not None and count > 0:
                chunks.append(Chunk(shadow, count, num_logits=0))
                num_left -= count
        if chunks:
            self._runner.run(chunks)
        return num_tokens - num_left

    def forget(self, request_id: str) -> None:
        """Let a sequence go."""
        shadow = self._shadows.pop(request_id, None)
        if shadow is not None:
            self._kv_cache.free(shadow)

    def keep_only(self, request_ids: Iterable[str]) -> None:
        """Let all other sequences go."""
        for request_id in self._shadows.keys() - set(request_ids):
            self.forget(request_id)

    def _follow(self, sequence: DraftedSequence, limit: int) -> _Shadow | None:
        """Bring the shadow up to its sequence: keep what both have, take the rest over, hold blocks for the drafts."""
        if sequence.num_tokens + limit > self._max_model_len:
            self.forget(sequence.request_id)
            return None
        shadow = self._shadows.get(sequence.request_id)
        if shadow is None:
            shadow = self._shadows[sequence.request_id] = _Shadow()
        token_ids = sequence.token_ids_between(0, sequence.num_tokens)
        num_common = sum(
            1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(shadow.token_ids, token_ids, strict=False))
        )
        # The last token is computed again at least: its logits are wanted.
        self._kv_cache.truncate(shadow, min(num_common, shadow.num_cached_tokens, len(token_ids) - 1))
        shadow.token_ids = token_ids
        if self._kv_cache.reserve(shadow, len(token_ids) - shadow.num_cached_tokens + limit):
            return shadow
        self.forget(sequence.request_id)
        return None
