"""Constraints that blow up elsewhere: llguidance refuses or compiles each in bounded time, and the process lives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, random, sys, time
from engine.errors import GrammarError
from engine.grammar import GrammarSpec, new_bitmask
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from tests.engine.grammar_backends import SMALL, STOP, allowed

SHORT = {"type": "string", "maxLength": 30}

def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema

def chained(count):
    names = [f"d{number}" for number in range(count)]
    links = {name: {"$ref": f"#/$defs/{after}"} for name, after in zip(names, names[1:])}
    return {"$ref": "#/$defs/d0", "$defs": {**links, names[-1]: {"type": "string"}}}

rng = random.Random(1)
words = ["".join(rng.choices("abcdef", k=60)) for _ in range(3000)]
CASES = {
    "optional letters": lambda: GrammarSpec.regex("(a?){2000}a{2000}"),
    "nested repeats": lambda: GrammarSpec.regex("((a{0,100}){0,100}){0,100}"),
    "looking back": lambda: GrammarSpec.regex("(.*a.{200}){5}"),
    "one of many words": lambda: GrammarSpec.choice(words),
    "E13 enum": lambda: GrammarSpec.from_json_schema({"enum": [f"v{number:05}" for number in range(20000)]}),
    "E14 bounds in bounds": lambda: GrammarSpec.from_json_schema(
        {"type": "array", "maxItems": 15, "items": {"type": "array", "maxItems": 15, "items": SHORT}}),
    "large bounds": lambda: GrammarSpec.from_json_schema(
        {"type": "array", "maxItems": 50000, "items": {"type": "string", "maxLength": 50000}}),
    "deep": lambda: GrammarSpec.from_json_schema(nested(60)),
    "too deep": lambda: GrammarSpec.from_json_schema(nested(300)),
    "ambiguous": lambda: GrammarSpec.lark('start: s\\ns: s s | "a" | "b"'),
    "chain of rules": lambda: GrammarSpec.lark(
        "start: r0\\n" + "\\n".join(f"r{number}: r{number + 1}" for number in range(4000)) + '\\nr4000: "x"'),
    "many rules": lambda: GrammarSpec.lark(
        "start: r0\\n" + "\\n".join(f"r{number}: r{number + 1}" for number in range(9000)) + '\\nr9000: "x"'),
    "chain of references": lambda: GrammarSpec("json_schema", json.dumps(chained(5000))),
    "huge multiple": lambda: GrammarSpec.from_json_schema({"type": "integer", "multipleOf": 999983}),
}
backend = LLGuidanceBackend(SMALL, num_threads=1)
for name, make in CASES.items():
    start = time.process_time()
    try:
        matcher = backend.compile(make()).new_matcher((STOP,))
        compile_s = time.process_time() - start
        worst_s = 0.0
        for _ in range(60):
            start = time.process_time()
            choices = allowed(matcher)
            worst_s = max(worst_s, time.process_time() - start)
            if not choices or matcher.is_terminated():
                break
            matcher.accept_tokens([rng.choice(choices)])
        outcome = "limit" if matcher.error is not None else "made"
    except GrammarError as error:
        compile_s, worst_s, outcome = time.process_time() - start, 0.0, f"refused: {error}"
    print(json.dumps([name, outcome, compile_s, worst_s]), flush=True)
"""
MAX_COMPILE_S = 8.0
MAX_STEP_S = 1.0


def test_every_case_ends_in_bounded_time_and_the_process_lives() -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=280, cwd=Path(__file__).parents[2], check=False
    )
    cases = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 0, (cases[-1:], result.stderr[-2000:])
    assert len(cases) == 14
    for name, outcome, compile_s, worst_s in cases:
        assert compile_s < MAX_COMPILE_S, (name, outcome)
        assert worst_s < MAX_STEP_S, (name, outcome)
    outcomes = {name: outcome for name, outcome, _, _ in cases}
    assert outcomes["E13 enum"] == outcomes["deep"] == outcomes["E14 bounds in bounds"] == "made"
    assert outcomes["too deep"].startswith("refused")
