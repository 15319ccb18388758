"""`thinkgate inspect`: which family a tokenizer is of and why, and where the gate would open; for people and as JSON.

For a local model its tokenizer is loaded, without weights. Of a remote model the name is all there is, and nothing is asked of
the server.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reasoning_parsers import FamilyRegistry, is_named

from ..errors import UnknownModelError
from ..upstreams.factory import LOCAL_PREFIX, read_registry
from .plain import line_width

_MAX_WIDTH = 120
_LABEL = 13
_STATES = {
    "open": "the prompt opens the thinking",
    "ended": "the prompt closes the thinking: the answer is constrained from its first token on",
    "unknown": "the prompt says nothing: the first token of the output decides",
}


def run(name: str, *, family: str, families_file: Path | None, base_url: str | None, as_json: bool) -> int:
    """Print what is known of a tokenizer or a remote model.

    Args:
        name: Name, folder or hub id of a model, with `local/` before it or without; or a remote model as litellm writes it.
        family: Name of the reasoning family, `auto` or `none`.
        families_file: Families of one's own, a TOML or JSON file.
        base_url: Address of the server, for a remote model.
        as_json: Print one JSON object.

    Raises:
        MiddlewareError: There is no such model, family or file, or the tokenizer cannot be loaded.
    """
    registry = read_registry(families_file)
    if _is_remote(name, base_url):
        facts = _describe_remote(name, base_url, family, registry)
        lines = _remote_lines(facts)
    else:
        facts = _describe_local(name, family, registry)
        lines = _local_lines(facts)
    print(json.dumps(facts, ensure_ascii=False, indent=2) if as_json else "\n".join(lines))
    return 0


def _is_remote(name: str, base_url: str | None) -> bool:
    if base_url is not None:
        return True
    provider, separator, _ = name.partition("/")
    if not separator or name.startswith((LOCAL_PREFIX, ".", "~", "/")) or Path(name).exists():
        return False
    from ..upstreams.litellm_loader import load_litellm

    # A hub id has the same form: its first part is an organization, and no provider.
    return provider in {str(getattr(known, "value", known)) for known in load_litellm().provider_list}


def _describe_remote(name: str, base_url: str | None, family: str, registry: FamilyRegistry | None) -> dict[str, Any]:
    from ..upstreams.remote import RemoteUpstream

    facts = RemoteUpstream(name, base_url=base_url, family=family, families=registry).describe()
    row = facts.family
    is_named_so = row is not None and any(is_named(alias, name) for alias in (row.name, *row.aliases))
    return {"model": name, "remote": True, "asked_for": family, "name_tells_family": is_named_so, **asdict(facts)}


def _describe_local(name: str, family: str, registry: FamilyRegistry | None) -> dict[str, Any]:
    from ..upstreams.local import inspect_local

    local = name.removeprefix(LOCAL_PREFIX)
    if not local:
        raise UnknownModelError("no model after local/", hint="for example local/pocket-r1")
    found = inspect_local(local, family=family, families=registry)
    return {"model": local, "remote": False, "asked_for": family, **found}


def _remote_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    family = facts["family"]
    yield from _field("model", f"{facts['model']}, behind {facts['provider']}; nothing was asked of the server")
    yield from _field("family", _remote_family(facts))
    if family is not None:
        markers = f"{family['start']} ... {family['end']}"
        yield from _field("thinking", f"taken from the server's own field; where there is none, from {markers} in the text")
    then = f"; if the server refuses: {', '.join(facts['fallbacks'])}" if facts["fallbacks"] else ""
    yield from _field("schema", f"asked for as {facts['schema_mode']}{then}")
    yield from _field("switch", _CONTROLS[facts["thinking_control"]])
    yield from _field("budget", _BUDGETS[facts["budget_control"]])
    yield from _field(
        "guarantee", "the answer is validated here, whatever the server does, and asked for again if it is not valid"
    )
    yield from _field("to see more", "give the folder or hub id of the model's files: thinkgate inspect local/<folder or hub id>")


def _remote_family(facts: Mapping[str, Any]) -> str:
    if facts["family"] is None:
        return "none, as you said"
    name = facts["family"]["name"]
    if facts["asked_for"] != "auto":
        return f"{name}, as you said"
    return (
        f"{name}, by the model's name"
        if facts["name_tells_family"]
        else f"the name tells nothing, so {name}'s markers are looked for"
    )


_CONTROLS = {
    "template": "thinking=True or False goes to the server's chat template",
    "effort": "thinking=True or False is sent as a reasoning effort",
    "none": "thinking cannot be switched",
}
_BUDGETS = {
    "anthropic": "max_reasoning_tokens is sent as a thinking budget",
    "vllm": "max_reasoning_tokens is sent to the server",
    "none": "max_reasoning_tokens cannot be sent to this server",
}


def _local_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    kind = f"{facts['tokenizer']}, {facts['num_tokens']} tokens"
    if facts["model_type"]:
        kind += f", model type {facts['model_type']}"
    yield from _field("tokenizer", kind)
    detection = facts["detection"]
    family = None if detection is None else detection["family"]
    if detection is None:
        yield from _field("family", "none, as you said")
    else:
        sure = detection["confidence"] if facts["asked_for"] == "auto" else "as you said"
        yield from _field("family", f"{'none' if family is None else family['name']} ({sure})")
        yield from _list("because", detection["evidence"])
        yield from _list("switch", [_switch(switch) for switch in detection["switches"]] or (["there is none"] if family else []))
        yield from _list("warning", detection["warnings"])
    if facts["markers"]:
        yield ""
        yield from _table(("marker", "text", "token ids"), [_marker(marker) for marker in facts["markers"]])
    yield ""
    yield "prompts, after the question, and where the gate opens:"
    default = facts["prompts"][0]
    for prompt in facts["prompts"]:
        yield from _prompt(prompt, default, family)


def _switch(switch: Mapping[str, Any]) -> str:
    values = f"{switch['on']!r} turns the thinking on, {switch['off']!r} off"
    return f"{switch['name']}: {values}; {'on' if switch['default'] else 'off'} by default"


def _marker(marker: Mapping[str, Any]) -> tuple[str, str, str]:
    token_ids = " ".join(map(str, marker["token_ids"]))
    return marker["role"], json.dumps(marker["text"], ensure_ascii=False)[1:-1], token_ids


def _prompt(prompt: Mapping[str, Any], default: Mapping[str, Any], family: Mapping[str, Any] | None) -> Iterator[str]:
    label = {None: "by default", True: "thinking on", False: "thinking off"}[prompt["thinking"]]
    if prompt["state"] is None:
        yield from _field(label, prompt["problem"])
        return
    variables = ", ".join(f"{name}={value!r}" for name, value in prompt["variables"].items())
    said = [f"with {variables}"] if variables else []
    if prompt["problem"]:
        said.append(prompt["problem"])
    elif prompt is not default and prompt["tail"] == default["tail"] and not prompt["differs_before"]:
        said.append("the same prompt as by default")
    else:
        said.append(json.dumps(prompt["tail"], ensure_ascii=False))
    if prompt["differs_before"]:
        said.append("the prompt also differs before the question")
    if family is None:
        said.append("no thinking: the answer is constrained from its first token on")
    elif prompt["state"] == "unknown" and prompt["opening"] is None:
        said.append("the prompt says nothing, and thinking is off: the answer is constrained from its first token on")
    elif prompt["state"] == "open" and family.get("format") == "channels":
        said.append(f"thinking and answer have headers of their own; the answer's is like {family['end']}")
    else:
        said.append(_STATES[prompt["state"]])
    if prompt["opening"] is not None:
        said.append(_opening(prompt["opening"]))
    yield from _list(label, said, bullet="")


def _opening(opening: Mapping[str, Any]) -> str:
    token = json.dumps(opening["token"], ensure_ascii=False)
    text = f"after a thought the answer is constrained from the token after {token} ({opening['token_id']}) on"
    if opening["leftover"]:
        leftover = json.dumps(opening["leftover"], ensure_ascii=False)
        text += f"; here that token ends with {leftover}, which is answer already and checked too"
    return text


def _field(label: str, text: str) -> Iterator[str]:
    yield from _list(label, [text], bullet="")


def _list(label: str, texts: Sequence[str], bullet: str = "- ") -> Iterator[str]:
    bullet = bullet if len(texts) > 1 else ""
    width = line_width(_MAX_WIDTH)
    for text in texts:
        head = f"{label:<{_LABEL}}{bullet}"
        yield textwrap.fill(
            text,
            width,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_long_words=False,
            break_on_hyphens=False,
        )
        label = ""


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for index, line in enumerate(lines):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        if index == 0:
            yield "  ".join("-" * width for width in widths)
