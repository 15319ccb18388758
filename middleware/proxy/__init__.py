"""An OpenAI-compatible server in front of any model that the client can reach. Needs the extra `proxy`.

Start reading at chat.py: it shows one request from top to bottom.
"""

from __future__ import annotations

from .app import create_app
from .backend import ServedModel
from .limits import Limits

__all__ = ["Limits", "ServedModel", "create_app"]
