"""Blocks are counted right, shared only where everything before them is the same, and hold what a dense cache holds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache, LlamaForCausalLM

from engine import EngineConfig, LLMEngine, SamplingParams
from engine.block_pool import BlockPool
from engine.kv_cache import BlockTable, PagedKVCache

CPU = torch.device("cpu")


@dataclass(slots=True, eq=False)
class Row:
    """A sequence as the cache sees it."""

    token_ids: list[int]
    num_cached_tokens: int = 0
    blocks: BlockTable = field(default_factory=BlockTable)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    def token_ids_between(self, start: int, stop: int) -> list[int]:
        return self.token_ids[start:stop]


def new_cache(num_blocks: int = 16, *, prefix_caching: bool = True) -> PagedKVCache:
    return PagedKVCache(num_layers=1, num_blocks=num_blocks, block_size=4, device=CPU, prefix_caching=prefix_caching)


def compute(cache: PagedKVCache, row: Row) -> None:
    """Hold a row and do as if all of it had been computed."""
    cache.allocate(row)
    assert cache.reserve(row, row.num_tokens - row.num_cached_tokens)
    row.num_cached_tokens = row.num_tokens
    cache.publish(row)


def test_same_beginning_shares_full_blocks_only() -> None:
    cache = new_cache()
    first, second = Row([1, 2, 3, 4, 5, 6, 7, 8, 9]), Row([1, 2, 3, 4, 5, 6, 7, 8, 10, 11])
    compute(cache, first)
    cache.allocate(second)
    assert second.num_cached_tokens == 8
    assert second.blocks.block_ids == first.blocks.block_ids[:2]
    assert cache.reserve(second, 2)
    assert second.blocks.block_ids[2] != first.blocks.block_ids[2]
    assert cache.num_free_blocks == 16 - 4


def test_last_token_is_always_computed() -> None:
    cache = new_cache()
    compute(cache, Row([1, 2, 3, 4, 5, 6, 7, 8]))
    again = Row([1, 2, 3, 4, 5, 6, 7, 8])
    cache.allocate(again)
    assert again.num_cached_tokens == 4


def test_block_is_shared_only_behind_the_same_blocks() -> None:
    cache = new_cache()
    compute(cache, Row([1, 2, 3, 4, 5, 6, 7, 8, 9]))
    other = Row([9, 9, 9, 9, 5, 6, 7, 8, 9])
    cache.allocate(other)
    assert other.num_cached_tokens == 0


def test_blocks_are_known_after_their_sequence_is_gone_until_they_are_taken() -> None:
    cache = new_cache(num_blocks=4)
    row = Row([1, 2, 3, 4, 5, 6, 7, 8, 9])
    compute(cache, row)
    cache.free(row)
    assert cache.num_free_blocks == 4
    again = Row([1, 2, 3, 4, 5, 6, 7, 8, 9])
    cache.allocate(again)
    assert again.num_cached_tokens == 8
    cache.free(again)
    big = Row(list(range(100, 116)))
    compute(cache, big)
    cache.free(big)
    late = Row([1, 2, 3, 4, 5, 6, 7, 8, 9])
    cache.allocate(late)
    assert late.num_cached_tokens == 0


def test_head_of_a_prefix_outlives_its_tail() -> None:
    cache = new_cache(num_blocks=4)
    row = Row([1, 2, 3, 4, 5, 6, 7, 8, 9])
    compute(cache, row)
    cache.free(row)
    other = Row(list(range(100, 109)))
    compute(cache, other)
    cache.free(other)
    again = Row([1, 2, 3, 4, 5, 6, 7, 8, 9])
    cache.allocate(again)
    assert again.num_cached_tokens == 4


def test_caching_switched_off_shares_nothing() -> None:
    cache = new_cache(prefix_caching=False)
    compute(cache, Row([1, 2, 3, 4, 5]))
    again = Row([1, 2, 3, 4, 5])
    cache.allocate(again)
    assert again.num_cached_tokens == 0


def test_can_allocate_counts_known_blocks_that_are_free_once() -> None:
    cache = new_cache(num_blocks=3)
    row = Row([1, 2, 3, 4, 5, 6, 7, 8, 9])
    compute(cache, row)
    assert not cache.can_allocate(Row([1, 2, 3, 4, 5, 6, 7, 8, 9]))
    cache.free(row)
    assert cache.can_allocate(Row([1, 2, 3, 4, 5, 6, 7, 8, 9]))
    assert not cache.can_allocate(Row([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]))


def test_reserve_that_fails_changes_nothing() -> None:
    cache = new_cache(num_blocks=2)
    row = Row([1, 2, 3])
    compute(cache, row)
    before = list(row.blocks.block_ids)
    assert not cache.reserve(row, 6)
    assert row.blocks.block_ids == before
    assert cache.reserve(row, 5)


def test_truncate_gives_back_the_blocks_of_drafts() -> None:
    cache = new_cache()
    row = Row([1, 2, 3, 4, 5])
    compute(cache, row)
    assert cache.reserve(row, 6)
    row.num_cached_tokens += 6
    cache.truncate(row, 7)
    assert row.num_cached_tokens == 7
    assert len(row.blocks.block_ids) == 2
    assert cache.num_free_blocks == 14


def test_unsound_sequence_leaves_nothing_behind() -> None:
    cache = new_cache()
    row = Row([1, 2, 3, 4, 5])
    compute(cache, row)
    pages = cache.pages(0, torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
    assert pages.keys is not None
    pages.keys.fill_(float("nan"))
    cache.free(row, is_sound=False)
    assert not pages.keys[:2].isnan().any()
    again = Row([1, 2, 3, 4, 5])
    cache.allocate(again)
    assert again.num_cached_tokens == 0


def test_letting_a_block_go_twice_is_a_bug() -> None:
    pool = BlockPool(2)
    taken = pool.take(1)
    pool.release(taken)
    with pytest.raises(AssertionError):
        pool.release(taken)


def test_leak_is_reported_and_mended(caplog: pytest.LogCaptureFixture) -> None:
    cache = new_cache()
    compute(cache, Row([1, 2, 3, 4, 5]))
    cache.check_idle()
    assert "2 blocks" in caplog.text
    assert cache.num_free_blocks == cache.num_blocks


class ReferencePool:
    """The same bookkeeping without cleverness: a dict of tables, and a list of everything that was ever written."""

    def __init__(self, num_blocks: int) -> None:
        self.contents: list[tuple[int, ...] | None] = [None] * num_blocks

    def write(self, row: Row, *, block_size: int) -> None:
        for index, block_id in enumerate(row.blocks.block_ids):
            head = tuple(row.token_ids[: min((index + 1) * block_size, row.num_cached_tokens)])
            self.contents[block_id] = head

    def check(self, row: Row, *, block_size: int) -> None:
        for index, block_id in enumerate(row.blocks.block_ids):
            held = self.contents[block_id]
            wanted = tuple(row.token_ids[: min((index + 1) * block_size, row.num_cached_tokens)])
            assert held is not None
            assert held[: len(wanted)] == wanted


class RandomLife:
    """Rows from few beginnings grow, are truncated, freed, and started again."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cache = new_cache(num_blocks=self.rng.randint(6, 24))
        self.reference = ReferencePool(24)
        self.rows: list[Row] = []

    def act(self) -> None:
        if not self.rows or self.rng.random() < 0.35:
            self.start()
        else:
            verbs = (self.grow, self.grow, self.cache.publish, self.shrink, self.end)
            self.rng.choice(verbs)(self.rng.choice(self.rows))

    def start(self) -> None:
        rng = self.rng
        row = Row([rng.randint(0, 1)] * rng.randint(1, 10) + [rng.randint(0, 1) for _ in range(rng.randint(0, 6))])
        if self.cache.can_allocate(row):
            self.cache.allocate(row)
            self.reference.check(row, block_size=4)
            assert self.cache.reserve(row, row.num_tokens - row.num_cached_tokens)
            row.num_cached_tokens = row.num_tokens
            self.reference.write(row, block_size=4)
            self.rows.append(row)

    def grow(self, row: Row) -> None:
        row.token_ids.append(self.rng.randint(0, 1))
        if self.cache.reserve(row, 1):
            row.num_cached_tokens += 1
            self.reference.write(row, block_size=4)
        else:
            row.token_ids.pop()

    def shrink(self, row: Row) -> None:
        kept = max(row.blocks.num_published * 4, row.num_tokens - self.rng.randint(0, 5))
        self.cache.truncate(row, kept)
        del row.token_ids[kept:]

    def end(self, row: Row) -> None:
        self.rows.remove(row)
        self.cache.free(row, is_sound=self.rng.random() < 0.8)


@pytest.mark.parametrize("seed", range(20))
def test_random_life_never_mixes_sequences(seed: int) -> None:
    life = RandomLife(seed)
    for _ in range(400):
        life.act()
        for row in life.rows:
            life.reference.check(row, block_size=4)
        held = {block_id for row in life.rows for block_id in row.blocks.block_ids}
        assert life.cache.num_free_blocks == life.cache.num_blocks - len(held)
    for row in list(life.rows):
        life.end(row)
    assert life.cache.num_free_blocks == life.cache.num_blocks


def test_pages_hold_what_a_dense_cache_holds(tiny_model: Path) -> None:
    """Prompts in pieces, shared beginnings and blocks in any order against transformers' own cache."""
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=4, max_num_batched_tokens=12))
    model: Any = LlamaForCausalLM.from_pretrained(tiny_model)
    head = list(range(5, 45))
    for number, tail in enumerate([[1], [2, 3, 4], [5] * 20]):
        engine.add_request(str(number), head + tail, SamplingParams(max_tokens=9))
    for _ in range(14):
        engine.step()
    checked = 0
    for sequence in engine._scheduler._running:
        num_cached = sequence.num_cached_tokens
        dense: Any = DynamicCache(config=model.config)
        model(input_ids=torch.tensor([sequence.token_ids_between(0, num_cached)]), cache=dense)
        for layer, pages in enumerate(engine._kv_cache.layers):
            assert pages.keys is not None
            assert pages.values is not None
            keys = pages.keys[sequence.blocks.block_ids].flatten(0, 1)[:num_cached]
            values = pages.values[sequence.blocks.block_ids].flatten(0, 1)[:num_cached]
            torch.testing.assert_close(keys, dense.layers[layer].keys[0].transpose(0, 1), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(values, dense.layers[layer].values[0].transpose(0, 1), rtol=1e-4, atol=1e-4)
        checked += 1
    assert checked
    engine.close()
