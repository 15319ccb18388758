"""Every answer under a schema validates: 500 generated schemas, greedy and sampled, with and without thinking."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from types import ModuleType

import jsonschema_rs
import pytest

from engine import GrammarSpec, LLMEngine, SamplingParams

NUM_SCHEMAS = 500
NUM_THINKING = 60
MESSAGE = {"role": "user", "content": "3 lamps at 4.50 each and two chairs at 15 euros"}


def load_schemas() -> ModuleType:
    location = importlib.util.spec_from_file_location("schemas", Path(__file__).parent / "schemas.py")
    assert location is not None
    assert location.loader is not None
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return module


@pytest.mark.timeout(900)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_answer_validates(pocket_engine: LLMEngine, temperature: float) -> None:
    rng = random.Random(2026)
    make_schema = load_schemas().make_schema
    schemas = [make_schema(rng) for _ in range(NUM_SCHEMAS)]
    prompts = [pocket_engine.render([MESSAGE], thinking=number < NUM_THINKING) for number in range(NUM_SCHEMAS)]
    params = [
        SamplingParams(max_tokens=800, max_reasoning_tokens=24, temperature=temperature, seed=seed) for seed in range(NUM_SCHEMAS)
    ]
    outputs = pocket_engine.generate(prompts, params, grammars=[GrammarSpec.from_json_schema(schema) for schema in schemas])
    for number, (schema, output) in enumerate(zip(schemas, outputs, strict=True)):
        assert output.stop_reason == "stop", (schema, output.content, output.error)
        jsonschema_rs.validate(schema, json.loads(output.content))
        assert "think>" not in output.content
        assert output.num_reasoning_tokens <= 24
        assert (output.num_reasoning_tokens > 0) is (number < NUM_THINKING)
