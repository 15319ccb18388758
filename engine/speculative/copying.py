"""Values that an answer takes from the text before it: where the next one begins, how it goes on, and where it ends.

Prompt lookup (`ngram.py`) needs tokens that stand in both. At the beginning of a value there are none: what was written last is
its name, which stands in the prompt in another form or not at all; and at its end the prompt goes on with something else. Here
the name is looked for as words, values are looked for behind the last one that was copied, and where they end is guessed from
what stands behind each word, and how often that ended a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from ..grammar import Matcher
from .gain import DraftSource
from .habits import Habits
from .json_place import JsonPlace, Value
from .source_text import SourceText
from .spellings import Spellings

MAX_WORDS = 24
"""Words that are tried for a value that only few texts can be."""
MAX_NUMBERS = 3
"""Numbers that are tried from each place."""
MAX_SPAN = 80
"""Characters that are copied at once."""
NUMBER_REACH = 48
"""Characters behind a name in which its number is looked for."""
_WORDS = {"true": b"true", "yes": b"true", "false": b"false", "no": b"false", "null": b"null", "none": b"null"}
_NOT_IN_STRINGS = re.compile(r'["\\\x00-\x1f]')
_NEXT_ITEM = re.compile(r"""["'\u201d)\]}]{0,2}[ \t]*(?:[,;|\u3001\uff0c]|\n[ \t]*[^\s\0])""")


@dataclass(frozen=True, slots=True)
class Guess:
    """Tokens that the grammar takes.

    Attributes:
        token_ids: The tokens.
        sources: Where each comes from.
        text_ids: As the tokenizer would write their text and what is forced behind it; None where nothing can be learned from it.
    """

    token_ids: list[int]
    sources: list[DraftSource]
    text_ids: list[int] | None = None


class ValueCopier:
    """Follows one answer and knows where its values stand in the text before it.

    Args:
        habits: Of the engine.
        spellings: Of the request.
        read_source: Gives the text before the answer; called once, when it is needed.
    """

    def __init__(self, habits: Habits, spellings: Spellings, read_source: Callable[[], bytes]) -> None:
        self.habits = habits
        self.spellings = spellings
        self._read_source = read_source
        self._source: SourceText | None = None
        self._place = JsonPlace()
        self._ended: list[Value] = []
        self._last_end: int | None = None

    @property
    def source(self) -> SourceText:
        """The text before the answer."""
        if self._source is None:
            self._source = SourceText(self._read_source().decode(errors="replace"))
        return self._source

    def follow(self, data: bytes, token_ids: Sequence[int]) -> None:
        """Take text of the answer: a rest of text, and tokens."""
        token_bytes = self.habits.vocabulary.token_bytes
        self._ended += self._place.feed(data + b"".join(token_bytes[token_id] for token_id in token_ids))

    def begin(self) -> Copying:
        """Begin to guess what comes after the text so far."""
        for value in self._ended:
            self._note(value)
        self._ended.clear()
        return Copying(self, self._place.copy(), self._last_end)

    def locate(self, value: Value, last_end: int | None) -> int | None:
        """Give where a value stands: behind its name, behind the last one, or anywhere."""
        text = _decode(value.text)
        if not text or len(text) > MAX_SPAN * 4:
            return None
        source = self.source
        after = last_end or 0
        for start in chain(source.labels(value.key, after), source.nexts(last_end)):
            if source.text.startswith(text, start):
                return start
        found = source.find(text, after)
        return source.find(text, 0) if found is None and after else found

    def _note(self, value: Value) -> None:
        """Learn where a copied value ended, and where it did not."""
        if value.text in (b"true", b"false"):
            self.habits.note_word(is_true=value.text == b"true")
            return
        start = self.locate(value, self._last_end)
        if start is None:
            return
        source = self.source
        stop = self._last_end = start + len(_decode(value.text))
        if source.is_number(start, stop):
            return
        opening = source.opening(start)
        for end in source.word_ends(start, stop):
            self.habits.note_ending(opening, source.ending(start, end), is_end=end == stop)


class Copying:
    """Guesses one run of drafts, each behind the ones before it.

    Args:
        copier: What is known of the answer.
        place: Where it stands; changed by what is guessed.
        last_end: Where the value that was copied last ends in the source.
    """

    def __init__(self, copier: ValueCopier, place: JsonPlace, last_end: int | None) -> None:
        self._copier = copier
        self._habits = copier.habits
        self._place = place
        self._last_end = last_end
        self._start: int | None = None

    def follow(self, token_ids: Sequence[int]) -> None:
        """Take drafts."""
        token_bytes = self._habits.vocabulary.token_bytes
        for value in self._place.feed(b"".join(token_bytes[token_id] for token_id in token_ids)):
            text, start = _decode(value.text), self._start
            if not self._stands_at(start, text):
                start = self._copier.locate(value, self._last_end)
            if start is not None:
                self._last_end = start + len(text)
            self._start = None

    def is_inside(self, token_ids: Sequence[int]) -> bool:
        """Whether the last tokens, which these are, belong to the value that is being written."""
        token_bytes = self._habits.vocabulary.token_bytes
        num_bytes = sum(len(token_bytes[token_id]) for token_id in token_ids)
        return self._place.spot in ("string", "literal") and num_bytes <= len(self._place.text)

    def guess(self, matcher: Matcher, limit: int) -> Guess | None:
        """Guess up to `limit` tokens that come next; the matcher is behind them afterwards. None where nothing is guessed."""
        place = self._place
        if place.spot == "value":
            return self._open_value(matcher, limit)
        if place.spot == "string":
            return self._begin_string(matcher, limit) if not place.text else self._go_on(matcher, limit)
        if place.spot == "literal":
            return self._go_on_number(matcher, limit)
        if place.spot == "between" and place.is_in_list:
            return self._next_item(matcher, limit)
        return None

    def _open_value(self, matcher: Matcher, limit: int) -> Guess | None:
        # What is forced was taken before: a quote stands here where longer tokens begin with one.
        if opened := self._accept(matcher, b'"', limit):
            return Guess(opened, ["opened"])
        for number in self._numbers():
            if token_ids := self._accept(matcher, number.encode(), limit):
                return _guess(token_ids, "searched", "copied")
        for word in self._words():
            if token_ids := self._accept(matcher, word, limit):
                return _guess(token_ids, "searched", "copied")
        return None

    def _begin_string(self, matcher: Matcher, limit: int) -> Guess | None:
        source = self._copier.source
        for draft_source, start in self._starts(is_open=self._is_open(matcher)):
            word = source.text[start : source.word_end(start)]
            token_ids = self._accept(matcher, word.encode(), limit) if word else []
            if token_ids:
                self._start = start
                return _guess(token_ids, draft_source, "copied")
        return None

    def _go_on(self, matcher: Matcher, limit: int) -> Guess | None:
        text = _decode(self._place.text)
        if not text or len(text) > MAX_SPAN * 4:
            return None
        start = self._start
        if not self._stands_at(start, text):
            start = self._copier.locate(Value(self._place.key, self._place.text), self._last_end)
        if start is None:
            return None
        self._start = start
        at = start + len(text)
        stop = self._span_end(start, at)
        if stop == at:
            return self._end(matcher, limit, self._quotes(at))
        token_ids = self._accept(matcher, self._rest(start, at, stop), limit, is_whole=False)
        return _guess(token_ids, "copied", "copied") if token_ids else None

    def _span_end(self, start: int, at: int) -> int:
        """Give where what is copied ends; `at` if the value does."""
        source = self._copier.source
        opening = source.opening(start)
        stop = at
        for end in source.word_ends(start, at + MAX_SPAN):
            if end < at:
                continue
            stop = end
            if self._habits.ends_value(opening, source.ending(start, end)):
                break
        barred = _NOT_IN_STRINGS.search(source.text, at, stop)
        if barred is not None:
            stop = barred.start()
        return stop if source.text[at:stop].strip() else at

    def _rest(self, start: int, at: int, stop: int) -> list[int]:
        """Give the tokens of a span behind what is written of it, as they would be in one piece."""
        source, habits = self._copier.source, self._habits
        written_len = len(source.text[start:at].encode())
        whole = habits.spell(source.text[start:stop].encode())
        for index, token_id in enumerate(whole):
            if written_len <= 0:
                return whole[index:] if not written_len else habits.spell(source.text[at:stop].encode())
            written_len -= len(habits.vocabulary.token_bytes[token_id])
        return habits.spell(source.text[at:stop].encode())

    def _go_on_number(self, matcher: Matcher, limit: int) -> Guess | None:
        written = _decode(self._place.text)
        for number in self._numbers():
            if number.startswith(written):
                rest = number[len(written) :].encode()
                if not rest:
                    break
                if token_ids := self._accept(matcher, rest, limit):
                    return _guess(token_ids, "copied", "copied")
        return self._end(matcher, limit, (b",", b"}", b"]"))

    def _next_item(self, matcher: Matcher, limit: int) -> Guess | None:
        return self._end(matcher, limit, (b",", b"]") if self._goes_on(self._last_end) else (b"]", b","))

    def _quotes(self, at: int) -> tuple[bytes, ...]:
        """Give what may end a string, the likeliest first; in a list with what goes into one token with the quote."""
        if not self._place.is_in_list:
            return (b'"',)
        return (b'","' if self._goes_on(at) else b'"]', b'"')

    def _goes_on(self, last_end: int | None) -> bool:
        """Whether a list goes on in the source behind an item."""
        return last_end is not None and _NEXT_ITEM.match(self._copier.source.text, last_end) is not None

    def _end(self, matcher: Matcher, limit: int, marks: Sequence[bytes]) -> Guess | None:
        """Guess a mark behind a value, and what is forced behind the mark."""
        for mark in marks:
            marked = self._accept(matcher, mark, limit)
            if not marked:
                continue
            forced = matcher.forced_tokens()
            matcher.rollback(len(marked))
            token_bytes = self._habits.vocabulary.token_bytes
            text_ids = self._habits.spell(mark + b"".join(token_bytes[token_id] for token_id in forced))
            token_ids = self._accept(matcher, self._copier.spellings.spell(text_ids), limit, is_whole=False)
            if not token_ids:
                token_ids = self._accept(matcher, mark, limit)
            return _guess(token_ids, "ended", "forced", text_ids)
        return None

    def _accept(self, matcher: Matcher, text: bytes | list[int], limit: int, *, is_whole: bool = True) -> list[int]:
        """Let the matcher take as much of a text as goes; where all of it is wanted, that or nothing."""
        # A word can be as long as the prompt; no more than its head becomes drafts.
        token_ids = (self._habits.spell(text[:MAX_SPAN]) if isinstance(text, bytes) else text)[:limit]
        num_taken = 0
        while num_taken < len(token_ids) and matcher.accept_tokens(token_ids[num_taken : num_taken + 1]):
            num_taken += 1
        if is_whole and num_taken < len(token_ids):
            matcher.rollback(num_taken)
            return []
        return token_ids[:num_taken]

    def _is_open(self, matcher: Matcher) -> bool:
        """Whether the grammar takes any text here, as far as can be told from one odd letter."""
        return matcher.validate_tokens(self._habits.spell(b"~")) > 0

    def _starts(self, *, is_open: bool) -> Iterator[tuple[DraftSource, int]]:
        """Give places where the next value may begin, the likeliest first."""
        source, key = self._copier.source, self._place.key
        after = self._last_end or 0
        for start in source.labels(key, after):
            # Behind the first item of a list its name says where the list began.
            if start >= after or not self._place.is_in_list:
                yield "labelled", start
        for start in source.nexts(self._last_end):
            yield "next", start
        if is_open:
            return
        for start in source.mentions(key, after):
            yield "searched", start
        for start in chain(islice(source.word_starts(after), MAX_WORDS), islice(source.word_starts(0), MAX_WORDS)):
            yield "searched", start

    def _numbers(self) -> Iterator[str]:
        source, key = self._copier.source, self._place.key
        after = self._last_end or 0
        for start in chain(source.labels(key, after), source.mentions(key, after)):
            yield from islice(source.numbers(start, start + NUMBER_REACH), 1)
        yield from islice(source.numbers(after), MAX_NUMBERS)
        if after:
            yield from islice(source.numbers(0), MAX_NUMBERS)

    def _words(self) -> Iterator[bytes]:
        source = self._copier.source
        for start in source.labels(self._place.key, self._last_end or 0):
            word = _WORDS.get(source.text[start : source.word_end(start)].lower())
            if word is not None:
                yield word
        yield from self._habits.usual_words

    def _stands_at(self, start: int | None, text: str) -> bool:
        return start is not None and bool(text) and self._copier.source.text.startswith(text, start)


def _guess(token_ids: list[int], first: DraftSource, rest: DraftSource, text_ids: list[int] | None = None) -> Guess:
    return Guess(token_ids, [first, *[rest] * (len(token_ids) - 1)], text_ids)


def _decode(text: bytes) -> str:
    """Give a text; none for one that ends inside a letter, or that is spelled with escapes."""
    try:
        return "" if b"\\" in text else text.decode()
    except UnicodeDecodeError:
        return ""
