"""The command line `thinkgate`: reads the arguments, calls one module of `commands/`, prints errors.

Uses argparse, so that `--help` and every error work in an installation without extras. Each command imports what it needs when
it runs. Exit codes: 0 done, 1 no valid answer or no model, 2 a wrong call, 130 interrupted.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from .client import Client
from .errors import InvalidRequestError, MiddlewareError

DEFAULT_MODEL = "local/pocket-r1"

N = TypeVar("N", int, float)

_DESCRIPTION = """\
Put a schema in, get a validated object out, from a model that thinks first.
The constraint starts exactly where the thinking ends, so the model reasons
freely and still cannot answer with anything but your object.
"""

_EPILOG = f"""\
try it:
  thinkgate demo              watch a small model think and answer, offline
  thinkgate generate "3 lamps at 4.50 EUR each"
                              free text from the same model
  thinkgate generate --schema order.json --stream < order.txt
                              an object, drawn while it forms
  thinkgate serve             a server for any OpenAI client
  thinkgate check order.json  what of a schema is enforced, what is wrong in it
  thinkgate inspect pocket-r1 which family a model is of, where its gate opens
  thinkgate parsers           the reasoning families: markers, switches

models:
  {DEFAULT_MODEL}             ships with the package
  local/FOLDER, local/HUB-ID  any causal LM that transformers loads
  openai/..., ollama/..., ... any litellm model string, its keys from the
                              environment; --base-url for a server of your own

`thinkgate COMMAND --help` tells more about a command.
"""

_GENERATE_EPILOG = """\
The answer goes to standard output and nothing else does, so it can be piped.
With --stream the thinking and the growing object are drawn on standard error
meanwhile. Keys of remote models come from the environment (OPENAI_API_KEY
and the like, as litellm names them).

examples:
  thinkgate generate --schema order.json "Two chairs at 15 euros each."
  thinkgate generate --schema engine.pocket.orders:Order "4 pens at 2 pounds"
  thinkgate generate --schema shop:Order --json < order.txt | jq .output.total
  thinkgate generate --model hosted_vllm/qwen3 \\
      --base-url http://localhost:8001/v1 --schema order.json < order.txt
"""

_SERVE_EPILOG = """\
Paths: /v1/chat/completions (plain and streamed), /v1/models, /health. Clients
ask for an object with response_format and find the thinking in
reasoning_content. Without keys anybody who reaches the port is served.

examples:
  thinkgate serve
  thinkgate serve --model local/pocket-r1 --model big=hosted_vllm/qwen3 \\
      --base-url http://localhost:8001/v1
  THINKGATE_API_KEYS=secret thinkgate serve --host 0.0.0.0
"""

_KIND_NAMES = {
    "regex": "a regular expression",
    "choice": "a JSON list of texts",
    "ebnf": "an EBNF grammar",
    "lark": "a Lark grammar",
    "structural_tag": "a structural tag",
}

_CHECK_EPILOG = """\
Without an option the end of the file's name tells (.lark, .ebnf, .gbnf), and
anything else is a JSON schema. No model is loaded. The report counts keywords
for each backend: masked (nothing else can be written), checked (on the
finished answer), refused (not taken by that backend).
Exit codes: 0 it is taken, 1 it is refused, 2 a wrong call.

examples:
  thinkgate check order.json
  thinkgate check --strict --json order.json | jq .entries
  thinkgate check --regex '[A-Z]{2}[0-9]{4}'
  thinkgate check answer.lark
"""

_SPLIT_EPILOG = """\
The family says which markers to look for. Without a marker the text is
reasoning only where the prompt opened the thinking: say so with
--prompt-state. Bytes that are no UTF-8 become U+FFFD.

examples:
  thinkgate split --family qwen3 < output.txt
  thinkgate split --family olmo3 --prompt-state open --json < output.txt
  thinkgate split --family kimi_k2 --stream < output.txt
"""


_DEMO_EPILOG = """\
Each order is text in a person's words. The thinking is drawn as it comes, then
the object as it forms, and at the end how many were valid and right. Needs no
network with the default model; loading it takes some seconds.

examples:
  thinkgate demo --count 1
  thinkgate demo --json | jq .valid
"""

_PARSERS_EPILOG = """\
A family says how a kind of model marks its thinking: the markers, the switch
of the chat template that turns it on and off (and what holds without it), and
whether the template opens the thinking itself. Give a name or an alias to
--family; `thinkgate inspect MODEL` says which family a model is of.

examples:
  thinkgate parsers
  thinkgate parsers --families families.toml
  thinkgate parsers --json | jq -r '.[].name'
"""

_INSPECT_EPILOG = """\
Says which reasoning family was found and why, which variable of the chat
template switches the thinking, the markers' token ids, and what a prompt
looks like with thinking on and off. No weights are loaded. The first part of
a remote model's name is a provider that litellm knows (openai/...,
hosted_vllm/...); anything else is a name, folder, file or hub id.

examples:
  thinkgate inspect pocket-r1
  thinkgate inspect ./my-model --families families.toml
  thinkgate inspect Qwen/Qwen3-8B --json | jq .detection.family.name
  thinkgate inspect hosted_vllm/qwen3 --base-url http://localhost:8001/v1
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    # The hub's client has a handler of its own; through ours every line of it would come twice.
    logging.getLogger("huggingface_hub").propagate = False
    try:
        exit_code = _COMMANDS[arguments.command](arguments)
        sys.stdout.flush()
    except MiddlewareError as error:
        _print_error(error)
        return 2 if isinstance(error, InvalidRequestError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output left; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return exit_code


def build_parser() -> argparse.ArgumentParser:
    """Give the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="thinkgate", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
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
    demo = commands.add_parser(
        "demo",
        help="watch a model think about written orders and answer with validated objects",
        epilog=_DEMO_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_model(demo)
    demo.add_argument("--count", type=_count, default=5, metavar="N", help="how many orders (default: %(default)s)")
    demo.add_argument(
        "--json", action="store_true", help="print one JSON object a line instead: output, reasoning, valid, usage, ..."
    )


def _add_generate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    generate = commands.add_parser(
        "generate",
        help="answer one prompt, as an object if a schema is given",
        epilog=_GENERATE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    generate.add_argument("prompt", nargs="?", help="the prompt; `-` or nothing reads standard input")
    generate.add_argument(
        "--schema", metavar="WHAT", help="a JSON schema or its file, or module:Class of a pydantic model or type"
    )
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
    serve = commands.add_parser(
        "serve",
        help="run an OpenAI-compatible server",
        epilog=_SERVE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
    parsers = commands.add_parser(
        "parsers",
        help="list the reasoning families: names, markers, switches, sources",
        epilog=_PARSERS_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shape = parsers.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print a JSON array with all fields")
    shape.add_argument("--markdown", action="store_true", help="print the page docs/families.md")
    _add_families(parsers)


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = commands.add_parser(
        "check",
        help="tell whether a schema or a grammar is taken, and what the masks enforce",
        epilog=_CHECK_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
        kinds.add_argument(option, dest="kind", action="store_const", const=kind, help=f"it is {_KIND_NAMES[kind]}")
    check.add_argument("--backend", metavar="NAME", default="auto", help="xgrammar, llguidance, or auto (default)")
    check.add_argument("--strict", action="store_true", help="refuse what the masks do not enforce")
    check.add_argument("--json", action="store_true", help="print one JSON object")


def _add_inspect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="show which reasoning family a model is of, why, and where the gate would open",
        epilog=_INSPECT_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_argument("model", metavar="MODEL", help="pocket-r1, a folder, a tokenizer.json, a hub id, or a remote model")
    inspect.add_argument("--base-url", metavar="URL", help="address of an OpenAI-compatible server, for a remote model")
    _add_family(inspect)
    inspect.add_argument("--json", action="store_true", help="print one JSON object with everything that was found")


def _add_split(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    split = commands.add_parser(
        "split",
        help="split a model's output on standard input into reasoning and content",
        epilog=_SPLIT_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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


def _client(arguments: argparse.Namespace) -> Client:
    # The pocket model is too small to gain from a second thread, and two that wait for each other crawl on busy cores.
    options = {"num_threads": 1} if arguments.model == DEFAULT_MODEL else None
    return Client(
        arguments.model,
        base_url=arguments.base_url,
        family=arguments.family,
        families=arguments.families,
        engine_options=options,
    )


def _demo(arguments: argparse.Namespace) -> int:
    from .commands import demo

    with _client(arguments) as client:
        return demo.run(client, count=arguments.count, as_json=arguments.json)


def _generate(arguments: argparse.Namespace) -> int:
    from .commands import generate

    prompt = generate.read_prompt(arguments.prompt)
    output_type = generate.load_output_type(arguments.schema) if arguments.schema else None
    names = ("max_tokens", "max_reasoning_tokens", "temperature", "seed", "thinking")
    options = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    with _client(arguments) as client:
        return generate.run(
            client, prompt, output_type=output_type, stream=arguments.stream, as_json_line=arguments.json, options=options
        )


def _serve(arguments: argparse.Namespace) -> int:
    from .commands import serve

    options = serve.ServeOptions(
        models=arguments.model or [DEFAULT_MODEL],
        host=arguments.host,
        port=arguments.port,
        base_url=arguments.base_url,
        family=arguments.family,
        families=arguments.families,
        key_file=arguments.api_key_file,
        max_concurrency=arguments.max_concurrency,
        timeout_s=arguments.timeout_s,
    )
    return serve.run(options)


def _parsers(arguments: argparse.Namespace) -> int:
    from .commands import parsers

    return parsers.run(as_json=arguments.json, as_markdown=arguments.markdown, families_file=arguments.families)


def _check(arguments: argparse.Namespace) -> int:
    from .commands import check

    return check.run(
        arguments.source,
        kind=arguments.kind,
        backend=arguments.backend,
        strict=arguments.strict,
        as_json=arguments.json,
    )


def _inspect(arguments: argparse.Namespace) -> int:
    from .commands import inspect

    return inspect.run(
        arguments.model,
        family=arguments.family,
        families_file=arguments.families,
        base_url=arguments.base_url,
        as_json=arguments.json,
    )


def _split(arguments: argparse.Namespace) -> int:
    from .commands import split

    return split.run(
        family=arguments.family,
        families_file=arguments.families,
        prompt_state=arguments.prompt_state,
        tools_offered=arguments.tools,
        effort=arguments.effort,
        as_json=arguments.json,
        stream=arguments.stream,
    )


_COMMANDS = {
    "demo": _demo,
    "generate": _generate,
    "serve": _serve,
    "parsers": _parsers,
    "inspect": _inspect,
    "check": _check,
    "split": _split,
}


def _print_error(error: MiddlewareError) -> None:
    print(f"thinkgate: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
