"""The options of the command line: one parser for `thinkgate` and one for each command."""

from __future__ import annotations

import argparse
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from .cli_texts import (
    CHECK_EPILOG,
    DEFAULT_MODEL,
    DEMO_EPILOG,
    DESCRIPTION,
    EPILOG,
    GENERATE_EPILOG,
    INSPECT_EPILOG,
    KIND_NAMES,
    PARSERS_EPILOG,
    SERVE_EPILOG,
    SPLIT_EPILOG,
)

N = TypeVar("N", int, float)


def build_parser() -> argparse.ArgumentParser:
    """Give the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="thinkgate", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"thinkgate {metadata.version('thinkgate')}")
    parser.add_argument("--verbose", action="store_true", help="log what happens to standard error (never prompts or answers)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_generate(commands)
    _add_serve(commands)
    _add_parsers(commands)
    _add_inspect(commands)
    _add_check(commands)
    _add_split(commands)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=DEFAULT_MODEL, help="which model (default: %(default)s)")
    parser.add_argument("--base-url", metavar="URL", help="address of an OpenAI-compatible server, for models that are not local")
    _add_family(parser)


def _add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help_text: str, epilog: str
) -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    return commands.add_parser(name, help=help_text, epilog=epilog, formatter_class=formatter)


def _add_family(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--family",
        default="auto",
        metavar="NAME",
        help="reasoning family of the model; `none` for one that does not think (default: find out)",
    )
    _add_families(parser)


def _add_families(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--families", type=Path, metavar="FILE", help="families of your own, a TOML or JSON file")


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = _add_command(
        commands, "demo", "watch a model think about written orders and answer with validated objects", DEMO_EPILOG
    )
    _add_model(demo)
    demo.add_argument("--count", type=_count, default=5, metavar="N", help="how many orders (default: %(default)s)")
    demo.add_argument(
        "--json", action="store_true", help="print one JSON object a line instead: output, reasoning, valid, usage, ..."
    )


def _add_generate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    generate = _add_command(commands, "generate", "answer one prompt, as an object if a schema is given", GENERATE_EPILOG)
    generate.add_argument("prompt", nargs="?", help="the prompt; `-` or nothing reads standard input")
    kinds = generate.add_mutually_exclusive_group()
    kinds.add_argument("--schema", metavar="WHAT", help="a JSON schema or its file, or module:Class of a pydantic model or type")
    kinds.add_argument("--regex", metavar="PATTERN", help="the answer is a text that this regular expression matches as a whole")
    kinds.add_argument("--choice", metavar="TEXT", action="append", help="the answer is this text; repeat it for each other one")
    _add_model(generate)
    shape = generate.add_mutually_exclusive_group()
    shape.add_argument("--stream", action="store_true", help="draw the thinking and the growing object on standard error")
    shape.add_argument("--json", action="store_true", help="print one line of JSON: output, reasoning, valid, usage, ...")
    generate.add_argument(
        "--max-tokens", type=_count, default=1024, metavar="N", help="most tokens, thinking included (default: %(default)s)"
    )
    generate.add_argument("--max-reasoning-tokens", type=int, metavar="N", help="most tokens of thinking")
    generate.add_argument("--temperature", type=float, metavar="T", help="0 takes the likeliest token each time")
    generate.add_argument("--seed", type=int, metavar="N", help="seed of the sampler")
    generate.add_argument(
        "--thinking", action=argparse.BooleanOptionalAction, help="switch thinking on or off (default: the model's)"
    )


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = _add_command(commands, "serve", "run an OpenAI-compatible server", SERVE_EPILOG)
    serve.add_argument(
        "--model",
        action="append",
        metavar="[NAME=]MODEL",
        help=f"a model to serve, under the name that clients use; may be repeated (default: {DEFAULT_MODEL})",
    )
    serve.add_argument("--base-url", metavar="URL", help="address of an OpenAI-compatible server, for models that are not local")
    _add_family(serve)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    serve.add_argument("--port", type=_port, default=8000, help="port to listen on; 0 takes a free one (default: %(default)s)")
    serve.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="API keys, one a line; more come from THINKGATE_API_KEYS (commas between)",
    )
    serve.add_argument("--max-concurrency", type=_count, metavar="N", help="requests in work at once; more get 503 (default: 64)")
    serve.add_argument("--timeout-s", type=_seconds, metavar="S", help="seconds for one request (default: 600)")


def _add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parsers = _add_command(commands, "parsers", "list the reasoning families: names, markers, switches, sources", PARSERS_EPILOG)
    shape = parsers.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print a JSON array with all fields")
    shape.add_argument("--markdown", action="store_true", help="print the page docs/families.md")
    _add_families(parsers)


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = _add_command(
        commands, "check", "tell whether a schema or a grammar is taken, and what the masks enforce", CHECK_EPILOG
    )
    check.add_argument("source", metavar="SCHEMA_OR_FILE", help="a file, the text itself, or - for standard input")
    kinds = check.add_mutually_exclusive_group()
    for option, kind in (
        ("--regex", "regex"),
        ("--choice", "choice"),
        ("--ebnf", "ebnf"),
        ("--lark", "lark"),
        ("--tag", "structural_tag"),
    ):
        kinds.add_argument(option, dest="kind", action="store_const", const=kind, help=f"it is {KIND_NAMES[kind]}")
    check.add_argument("--backend", metavar="NAME", default="auto", help="xgrammar, llguidance, or auto (default)")
    check.add_argument("--strict", action="store_true", help="refuse what the masks do not enforce")
    check.add_argument("--json", action="store_true", help="print one JSON object")


def _add_inspect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    inspect = _add_command(
        commands, "inspect", "show which reasoning family a model is of, why, and where the gate would open", INSPECT_EPILOG
    )
    inspect.add_argument("model", metavar="MODEL", help="pocket-r1, a folder, a tokenizer.json, a hub id, or a remote model")
    inspect.add_argument("--base-url", metavar="URL", help="address of an OpenAI-compatible server, for a remote model")
    _add_family(inspect)
    inspect.add_argument("--json", action="store_true", help="print one JSON object with everything that was found")


def _add_split(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    split = _add_command(commands, "split", "split a model's output on standard input into reasoning and content", SPLIT_EPILOG)
    split.add_argument("--family", required=True, metavar="NAME", help="reasoning family; `thinkgate parsers` lists them")
    _add_families(split)
    split.add_argument(
        "--prompt-state",
        choices=("ended", "open", "unknown"),
        default="unknown",
        help="what the prompt said: thinking over, under way, or nothing (default: %(default)s)",
    )
    split.add_argument("--tools", action="store_true", help="the request offered tools: a call ends the thinking")
    split.add_argument("--effort", metavar="WORD", help="the request's reasoning effort, where the markers depend on it")
    split.add_argument("--json", action="store_true", help="print one JSON object, with --stream one for each delta")
    split.add_argument(
        "--stream",
        type=_count,
        nargs="?",
        const=16,
        metavar="N",
        help="print each delta; read N characters at a time (default: 16)",
    )


def _count(text: str) -> int:
    value = _number(int, text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _port(text: str) -> int:
    value = _number(int, text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError("must be between 0 and 65535")
    return value


def _seconds(text: str) -> float:
    value = _number(float, text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _number(kind: type[N], text: str) -> N:
    """Convert with the message that argparse has for `kind`; of itself it would name the function that it was given."""
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid {kind.__name__} value: {text!r}") from None
