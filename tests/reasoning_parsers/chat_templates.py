"""Chat templates with the idioms that the families' own templates have, each as short as it can be, and what is to be found.

Written for these tests; the idioms were read in public templates. Rendered with jinja2 as transformers does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

from reasoning_parsers import PROBE_TEXT, PromptState, Switch, TokenizerFacts

CHATML = ("<|im_start|>", "<|im_end|>")
THINK = ("<think>", "</think>")
DEEPSEEK = ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>")
GLM = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")

_CHATML_TURNS = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
_DEEPSEEK_TURNS = "{% for m in messages %}{{ '<\uff5cUser\uff5c>' + m['content'] }}{% endfor %}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateCase:
    """A template, the added tokens beside it, and what must be learned.

    Attributes:
        name: For the test's id.
        source: The template.
        tokens: Added tokens.
        switches: Switches, in any order.
        prompt_state: What a prompt says by default.
        family: Name of the row; None for none.
        is_clear_from_source: Whether the source alone tells the prompt state; rendering always does.
    """

    name: str
    source: str
    tokens: tuple[str, ...]
    switches: tuple[Switch, ...]
    prompt_state: PromptState
    family: str | None
    is_clear_from_source: bool = True

    def facts(self, *, can_render: bool = True, **others: Any) -> TokenizerFacts:
        """The facts of a tokenizer with this template."""
        return make_facts(self.source, self.tokens, can_render=can_render, **others)


def make_facts(source: str, tokens: tuple[str, ...], *, can_render: bool = True, **others: Any) -> TokenizerFacts:
    """The facts of a tokenizer with this template and these added tokens."""

    def render(variables: Mapping[str, object]) -> str:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        messages = [{"role": "user", "content": PROBE_TEXT}]
        return environment.from_string(source).render(messages=messages, add_generation_prompt=True, bos_token="<s>", **variables)

    added = {token: 1000 + index for index, token in enumerate(tokens)}
    return TokenizerFacts(added_tokens=added, chat_template=source, render=render if can_render else None, **others)


CASES = (
    TemplateCase(
        name="qwen3: off is asked for by name",
        source=_CHATML_TURNS
        + "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
        + "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
        + "{%- endif %}",
        tokens=(*CHATML, *THINK, "<tool_call>"),
        switches=(Switch("enable_thinking", True, False, True),),
        prompt_state="unknown",
        family="qwen3",
    ),
    TemplateCase(
        name="qwen3.5: the template opens the thinking",
        source=_CHATML_TURNS
        + "{%- if add_generation_prompt %}<|im_start|>assistant\n"
        + "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}"
        + "{%- else %}{{- '<think>\\n' }}{%- endif %}{%- endif %}",
        tokens=(*CHATML, *THINK, "<tool_call>"),
        switches=(Switch("enable_thinking", True, False, True),),
        prompt_state="open",
        family="qwen3",
    ),
    TemplateCase(
        name="QwQ and the thinking-only Qwen3: no switch",
        source=_CHATML_TURNS + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}",
        tokens=(*CHATML, *THINK, "<tool_call>"),
        switches=(),
        prompt_state="open",
        family="qwen3_thinking",
    ),
    TemplateCase(
        name="deepseek r1: no switch",
        source=_DEEPSEEK_TURNS
        + "{% if add_generation_prompt and not ns.is_tool %}{{'<\uff5cAssistant\uff5c><think>\\n'}}{% endif %}",
        tokens=(*DEEPSEEK, *THINK),
        switches=(),
        prompt_state="open",
        family="deepseek_r1",
    ),
    TemplateCase(
        name="deepseek v3.1: off unless asked for, by one of two names",
        source="{% if not thinking is defined %}{% if enable_thinking is defined %}{% set thinking = enable_thinking %}"
        + "{% else %}{% set thinking = false %}{% endif %}{% endif %}"
        + _DEEPSEEK_TURNS
        + "{%- if add_generation_prompt -%}{{'<\uff5cAssistant\uff5c>'}}{%- if not thinking -%}{{'</think>'}}"
        + "{%- else -%}{{'<think>'}}{%- endif -%}{%- endif %}",
        tokens=(*DEEPSEEK, *THINK),
        switches=(Switch("thinking", True, False, False), Switch("enable_thinking", True, False, False)),
        prompt_state="ended",
        family="deepseek_v3",
    ),
    TemplateCase(
        name="deepseek v3.2: markers in variables",
        source="{%- set enable_thinking = enable_thinking | default(true) -%}"
        + "{%- set opener = \"<think>\" -%}{% set closer = '</think>' %}"
        + _DEEPSEEK_TURNS
        + "{%- if add_generation_prompt -%}<\uff5cAssistant\uff5c>{%- if enable_thinking -%}{{ opener }}{%- else -%}{{ closer }}"
        + "{%- endif -%}{%- endif -%}",
        tokens=(*DEEPSEEK, *THINK),
        switches=(Switch("enable_thinking", True, False, True),),
        prompt_state="open",
        family="deepseek_r1",
    ),
    TemplateCase(
        name="glm: the switch writes into the user's turn",
        source="[gMASK]<sop>{% for m in messages %}<|user|>\n{{ m.content }}"
        + "{{- '/nothink' if (enable_thinking is defined and not enable_thinking"
        + " and not m.content.endswith('/nothink')) else '' -}}"
        + "{% endfor %}{%- if add_generation_prompt -%}<|assistant|>"
        + "{{- '\\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}{%- endif -%}",
        tokens=(*GLM, *THINK, "<tool_call>"),
        switches=(Switch("enable_thinking", True, False, True),),
        prompt_state="unknown",
        family="glm45",
    ),
    TemplateCase(
        name="kimi k2: undefined means on",
        source="{%- if thinking is undefined -%}{%- set thinking = true -%}{%- endif -%}"
        + "{% for m in messages %}<|im_user|>{{ m.content }}<|im_end|>{% endfor %}"
        + "{%- if add_generation_prompt -%}<|im_assistant|>{{ '<think>' if thinking is true else '<think></think>' }}"
        + "{%- endif -%}",
        tokens=("<|im_user|>", "<|im_assistant|>", "<|im_end|>", *THINK, "<|tool_calls_section_begin|>"),
        switches=(Switch("thinking", True, False, True),),
        prompt_state="open",
        family="kimi_k2",
    ),
    TemplateCase(
        name="minimax m3: a word",
        source="{% for m in messages %}]~b]user\n{{ m.content }}[e~[{% endfor %}{% if add_generation_prompt %}]~b]ai\n"
        + "{% if thinking_mode is defined and thinking_mode == 'enabled' %}<mm:think>\n{% endif %}{% endif %}",
        tokens=("]~b]", "[e~[", "<mm:think>", "</mm:think>"),
        switches=(Switch("thinking_mode", "enabled", "none", False),),
        prompt_state="unknown",
        family="minimax_m3",
    ),
    TemplateCase(
        name="an effort whose lowest step is none",
        source="{%- set effort = reasoning_effort | default('high') | lower -%}"
        + "{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}"
        + "{%- if add_generation_prompt %}{% if effort != 'none' %}{{ '[THINK]' }}{% endif %}{% endif %}",
        tokens=("[INST]", "[/INST]", "[THINK]", "[/THINK]"),
        switches=(Switch("reasoning_effort", "high", "none", True),),
        prompt_state="open",
        family="mistral",
    ),
    TemplateCase(
        name="an effort that only says how much is no switch",
        source="{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
        + "{% if reasoning_effort in ['low', 'medium', 'high'] %}Reasoning: {{ reasoning_effort }}{% endif %}"
        + _CHATML_TURNS
        + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
        tokens=(*CHATML, *THINK, "<tool_call>"),
        switches=(),
        prompt_state="open",
        family="qwen3_thinking",
    ),
    TemplateCase(
        name="a switch that means the opposite",
        source=_CHATML_TURNS
        + "{% if add_generation_prompt %}<|im_start|>assistant\n"
        + "{% if skip_reasoning %}<think></think>{% else %}<think>{% endif %}{% endif %}",
        tokens=(*CHATML, *THINK),
        switches=(Switch("skip_reasoning", False, True, True),),
        prompt_state="open",
        family="qwen3",
    ),
    TemplateCase(
        name="nemotron super: a constant is no switch",
        source="{%- set enable_thinking = true -%}"
        + _CHATML_TURNS
        + "{%- if add_generation_prompt -%}<|im_start|>assistant\n"
        + "{%- if not enable_thinking -%}{{- '<think>\\n\\n</think>' -}}{%- endif -%}{%- endif -%}",
        tokens=(*CHATML, *THINK, "<tool_call>"),
        switches=(),
        prompt_state="unknown",
        family="qwen3_thinking",
    ),
    TemplateCase(
        name="nemotron nano: an attribute of a namespace is no switch",
        source="{%- set ns = namespace(enable_thinking=true) -%}{%- for m in messages -%}{%- if '/no_think' in m.content -%}"
        + "{%- set ns.enable_thinking = false -%}{%- endif -%}{{ '<|im_start|>' + m.content }}{%- endfor -%}"
        + "{%- if add_generation_prompt -%}<|im_start|>assistant\n"
        + "{%- if ns.enable_thinking is defined and ns.enable_thinking is false -%}<think></think>"
        + "{%- else -%}<think>\n{%- endif -%}{%- endif -%}",
        tokens=(*CHATML, *THINK, "<tool_call>"),
        switches=(),
        prompt_state="open",
        family="qwen3_thinking",
        is_clear_from_source=False,
    ),
    TemplateCase(
        name="seed: markers in variables, a budget that is no switch",
        source="{%- set bos_token = '<seed:bos>' -%}{%- set think_begin_token = '<seed:think>' -%}"
        + "{%- if not thinking_budget is defined %}{%- set thinking_budget = -1 -%}{%- endif -%}"
        + "{%- for m in messages %}{{ bos_token + m.role + '\\n' + m.content + '<seed:eos>' }}{%- endfor %}"
        + '{%- if add_generation_prompt %}{{ bos_token+"assistant\\n" }}{%- endif %}{# never </seed:think> #}',
        tokens=("<seed:bos>", "<seed:eos>", "<seed:think>", "</seed:think>"),
        switches=(),
        prompt_state="unknown",
        family="seed_oss",
    ),
    TemplateCase(
        name="markers that a macro writes",
        source="{% macro tag(name) %}<{{ name }}>{% endmacro %}"
        + _CHATML_TURNS
        + "{% if add_generation_prompt %}<|im_start|>assistant\n"
        + "{{ tag('think' if enable_thinking | default(true) else '/think') }}{% endif %}",
        tokens=(*CHATML, *THINK, "<tool_call>"),
        switches=(Switch("enable_thinking", True, False, True),),
        prompt_state="open",
        family="qwen3",
        is_clear_from_source=False,
    ),
    TemplateCase(
        name="not given is a third way, and thinks",
        source=_CHATML_TURNS
        + "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is not defined %}<think>"
        + "{% elif enable_thinking %}(deep)<think>{% else %}<think></think>{% endif %}{% endif %}",
        tokens=(*CHATML, *THINK, "<tool_call>"),
        switches=(Switch("enable_thinking", True, False, True),),
        prompt_state="open",
        family="qwen3",
    ),
    TemplateCase(
        name="no thinking",
        source=_CHATML_TURNS + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        tokens=CHATML,
        switches=(),
        prompt_state="unknown",
        family=None,
    ),
)
