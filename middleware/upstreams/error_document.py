"""What a server says in a document where a stream of events was due, with status 200: OpenAI's client is silent about it.

Seen: an error as JSON, a web page, and a whole completion from a server that does not stream.
"""

from __future__ import annotations

import json
import re
from typing import Any

_DOCUMENTS = ("application/json", "text/html")
_MAX_TEXT_LEN = 200


class ErrorDocumentError(Exception):
    """The server's own words, and its status where they name one."""

    def __init__(self, message: str, status_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status_code = status_code


class ErrorDocument:
    """A response that says it is a document.

    Attributes:
        response: The response, httpx's; its body is read by the caller, who knows how to wait.
    """

    def __init__(self, response: Any) -> None:
        self.response = response

    @classmethod
    def of(cls, stream: Any) -> ErrorDocument | None:
        """Give the document behind a stream of OpenAI's client; None where there are events."""
        response = getattr(stream, "response", None)
        kind = str(getattr(response, "headers", {}).get("content-type", "")).partition(";")[0].strip().lower()
        return cls(response) if kind in _DOCUMENTS else None

    def check(self, body: bytes) -> None:
        """Do nothing if the body holds events all the same.

        Raises:
            ErrorDocumentError: It does not.
        """
        text = body.decode("utf-8", "replace")
        if re.search(r"^data:", text, re.MULTILINE):
            return
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            shown = " ".join(text.split())[:_MAX_TEXT_LEN]
            raise ErrorDocumentError(f"the server sent a document instead of a stream: {shown}") from None
        if isinstance(value, dict) and "choices" in value:
            raise ErrorDocumentError("the server sent a whole completion instead of a stream: it does not stream")
        error = value.get("error", value) if isinstance(value, dict) else value
        message = error.get("message") if isinstance(error, dict) else error
        code = error.get("code") if isinstance(error, dict) else None
        raise ErrorDocumentError(str(message or text[:_MAX_TEXT_LEN]), code if isinstance(code, int) else None)
