"""`thinkgate generate`: one prompt, one answer. Only the answer goes to standard output, so that it can be piped."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..client import Client
from ..errors import GenerationError, InvalidRequestError, InvalidSchemaError
from ..result import Result
from ..text_types import Choice, Regex, TextType
from .plain import as_json


def find_output_type(schema: str | None, regex: str | None, choices: list[str] | None) -> Any:
    """Give the output type that the options name; None for free text. At most one of them is given.

    Raises:
        InvalidRequestError: As `load_output_type`.
    """
    if regex is not None:
        return Regex(regex)
    if choices is not None:
        return Choice(tuple(choices))
    return load_output_type(schema) if schema is not None else None


def load_output_type(spec: str) -> Any:
    """Give the output type that `FILE` (a JSON schema), a JSON schema itself or `module:Class` names.

    Raises:
        InvalidRequestError: There is no such file, module or class, or it is no JSON schema.
    """
    if spec.lstrip().startswith("{"):
        return _parse_schema(spec, "the schema")
    path = Path(spec)
    if path.suffix == ".json" or path.is_file():
        return _load_schema_file(path)
    module_name, separator, name = spec.partition(":")
    if not separator:
        raise InvalidRequestError(
            f"{spec!r} is neither a schema, nor its file, nor module:Class",
            param="schema",
            hint="for example --schema order.json or shop.types:Order",
        )
    sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # the module is the user's and may raise anything
        raise InvalidRequestError(f"cannot load {spec!r}: {type(error).__name__}: {error}", param="schema") from error
    finally:
        sys.path.remove("")
    return found


def _load_schema_file(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(f"cannot read {path}: {error.strerror}", param="schema") from error
    except ValueError as error:
        raise InvalidSchemaError(f"{path} is not JSON: {error}", param="schema") from error
    return _parse_schema(text, str(path))


def _parse_schema(text: str, place: str) -> Any:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"{place} is not JSON: {error}", param="schema") from error
    if not isinstance(schema, dict):
        raise InvalidSchemaError(f"{place} holds no JSON object", param="schema")
    return schema


def read_prompt(argument: str | None) -> str:
    """Give the prompt: the argument, or standard input where it is `-` or absent.

    Raises:
        InvalidRequestError: There is none.
    """
    if argument is None and sys.stdin.isatty():
        raise InvalidRequestError("no prompt", param="prompt", hint="give one as an argument, or pipe one in")
    text = argument if argument not in (None, "-") else sys.stdin.read()
    assert text is not None
    if not text.strip():
        raise InvalidRequestError("the prompt is empty", param="prompt")
    return text


def run(client: Client, prompt: str, *, output_type: Any, stream: bool, as_json_line: bool, options: dict[str, Any]) -> int:
    """Answer one prompt; thinking goes to standard error when streamed.

    Raises:
        MiddlewareError: There is no valid answer.
    """
    if as_json_line:
        return _run_as_json_line(client, prompt, output_type, options)
    with client.stream(output_type, prompt, **options) as events:
        if stream:
            from .display import Display

            Display(sys.stderr).follow(events)
        else:
            for _ in events:
                pass
        result: Result[Any] = events.result
    output = result.output
    is_text = isinstance(output, str) and (output_type is None or isinstance(output_type, TextType))
    print(output if is_text else as_json(output, indent=2), flush=True)
    return 0


def _run_as_json_line(client: Client, prompt: str, output_type: Any, options: dict[str, Any]) -> int:
    body: dict[str, Any]
    try:
        result = client.generate(output_type, prompt, **options)
    except GenerationError as error:
        body = {
            "output": None,
            "reasoning": error.reasoning,
            "valid": False,
            "usage": asdict(error.usage),
            "error": {"type": type(error).__name__, "message": error.message, "hint": error.hint, "phase": error.phase},
        }
        print(json.dumps(body, ensure_ascii=False), flush=True)
        return 1
    body = {
        "output": json.loads(as_json(result.output)),
        "reasoning": result.reasoning,
        "valid": True,
        "usage": asdict(result.usage),
    }
    body |= {"finish_reason": result.finish_reason, "enforcement": result.enforcement, "attempts": result.attempts}
    body |= {"checked_after": result.checked_after, "notes": result.notes}
    print(json.dumps(body, ensure_ascii=False), flush=True)
    return 0
