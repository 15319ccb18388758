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

from .cli_parser import build_parser
from .cli_texts import DEFAULT_MODEL
from .client import Client
from .errors import InvalidRequestError, MiddlewareError


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
    output_type = generate.find_output_type(arguments.schema, arguments.regex, arguments.choice)
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
