"""The one place that imports litellm: late, since it takes seconds, and quietly.

Knows nothing of requests; `remote.py` uses what is loaded here.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from ..errors import MissingExtraError

_READ_ONLY = r"Items? .* on TypedDict class .* using the `ReadOnly` qualifier"


def load_litellm() -> Any:
    """Import litellm and return the module. Slow the first time; safe to call from any thread.

    It would fetch its price map from the network while it is imported, and print advice on errors: both are switched off.

    Raises:
        MissingExtraError: litellm is not installed.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        import litellm
    except ImportError as error:
        raise MissingExtraError(f"litellm cannot be imported: {error}", hint="pip install litellm") from error
    litellm.suppress_debug_info = True
    # Pydantic says this of litellm's own types at the first reply; nobody who uses this package can do anything about it.
    warnings.filterwarnings("ignore", message=_READ_ONLY, category=UserWarning)
    return litellm
