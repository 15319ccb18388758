"""Whether the model hub can be asked, found out by one question: its client repeats each of many for a long time."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from .errors import ModelLoadError

TIMEOUT_S = 10.0
_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json")


def check_reachable(source: str) -> None:
    """Refuse a hub id when the hub cannot be reached and none of the model's files was fetched before.

    A folder, and whatever the hub has something to say about, is left to the loader.

    Raises:
        ModelLoadError: There is no way to the hub.
    """
    if Path(source).exists():
        return
    try:
        if not any(isinstance(try_to_load_from_cache(source, file), str) for file in _FILES):
            HfApi().model_info(source, timeout=TIMEOUT_S)
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled):
        return  # no such id, a mirror that answers in another way, offline by choice: the loader says so
    except Exception as error:  # of whichever HTTP library the hub's client is built on
        raise ModelLoadError(
            f"cannot load {source!r}: the model hub cannot be reached: {error}",
            hint="is there a network? A folder of model files needs none",
            retryable=True,
        ) from error
