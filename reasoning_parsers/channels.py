"""The channels of a family whose output is a row of messages, each with a header that says what it is: data only.

A header begins with an opener and ends with `header_end`; between them stands what the message is. Harmony writes
`<|channel|>analysis<|message|>I think<|end|><|start|>assistant<|channel|>final<|message|>{"a":1}<|return|>`. Where the opener
itself says what the message is (typed blocks), `header_end` is empty. `channel_parser.py` splits such text.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """How the messages of one output are told apart.

    Attributes:
        openers: Texts that begin a header.
        header_end: Text that ends a header; "" where the opener is the whole header.
        closers: Texts that end the body of a message.
        reasoning: Beginnings of the header texts of thinking; where the opener is the whole header, openers.
        content: The same for the answer. The answer begins after such a header, and not without one.
        preamble: The same for messages to the user before the answer. They are content too, but not the answer.
        recipient: Text in or before a header that addresses the message to someone else: a tool call, whatever the channel.
            "" where headers have no such thing.
        frames: Texts that begin the frame between two messages, up to the next opener. The frame belongs to the header; one
            without an opener is the header of an answer.
        content_closers: Those closers that end an answer only.
        plain_openers: Whether the openers are ordinary text. Then they count only where a header is due, at the head and after a
            closer or in a frame, and there is no white space between them and the header's end.
        next_frame: The frame that the model writes between two messages of its own, as a whole; "" where it writes none.
    """

    openers: tuple[str, ...]
    header_end: str = ""
    closers: tuple[str, ...] = ()
    reasoning: tuple[str, ...]
    content: tuple[str, ...]
    preamble: tuple[str, ...] = ()
    recipient: str = ""
    frames: tuple[str, ...] = ()
    content_closers: tuple[str, ...] = ()
    plain_openers: bool = False
    next_frame: str = ""
