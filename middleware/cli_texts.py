"""What `thinkgate --help` and the help of each command say besides their options."""

from __future__ import annotations

DEFAULT_MODEL = "local/pocket-r1"

DESCRIPTION = """\
Put a schema in, get a validated object out, from a model that thinks first.
The constraint starts exactly where the thinking ends, so the model reasons
freely and still cannot answer with anything but your object.
"""

EPILOG = f"""\
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

GENERATE_EPILOG = """\
The answer goes to standard output and nothing else does, so it can be piped.
With --stream the thinking and the growing object are drawn on standard error
meanwhile. Keys of remote models come from the environment (OPENAI_API_KEY
and the like, as litellm names them).

examples:
  thinkgate generate --schema order.json "Two chairs at 15 euros each."
  thinkgate generate --schema engine.pocket.orders:Order "4 pens at 2 pounds"
  thinkgate generate --schema shop:Order --json < order.txt | jq .output.total
  thinkgate generate --choice yes --choice no "Is shipping free?"
  thinkgate generate --model hosted_vllm/qwen3 \\
      --base-url http://localhost:8001/v1 --schema order.json < order.txt
"""

SERVE_EPILOG = """\
Paths: /v1/chat/completions (plain and streamed), /v1/models, /health. Clients
ask for an object with response_format and find the thinking in
reasoning_content. Without keys anybody who reaches the port is served.

examples:
  thinkgate serve
  thinkgate serve --model local/pocket-r1 --model big=hosted_vllm/qwen3 \\
      --base-url http://localhost:8001/v1
  THINKGATE_API_KEYS=secret thinkgate serve --host 0.0.0.0
"""

KIND_NAMES = {
    "regex": "a regular expression",
    "choice": "a JSON list of texts",
    "ebnf": "an EBNF grammar",
    "lark": "a Lark grammar",
    "structural_tag": "a structural tag",
}

CHECK_EPILOG = """\
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

SPLIT_EPILOG = """\
The family says which markers to look for. Without a marker the text is
reasoning only where the prompt opened the thinking: say so with
--prompt-state. Bytes that are no UTF-8 become U+FFFD.

examples:
  thinkgate split --family qwen3 < output.txt
  thinkgate split --family olmo3 --prompt-state open --json < output.txt
  thinkgate split --family kimi_k2 --stream < output.txt
"""


DEMO_EPILOG = """\
Each order is text in a person's words. The thinking is drawn as it comes, then
the object as it forms, and at the end how many were valid and right. Needs no
network with the default model; loading it takes some seconds.

examples:
  thinkgate demo --count 1
  thinkgate demo --json | jq .valid
"""

PARSERS_EPILOG = """\
A family says how a kind of model marks its thinking: the markers, the switch
of the chat template that turns it on and off (and what holds without it), and
whether the template opens the thinking itself. Give a name or an alias to
--family; `thinkgate inspect MODEL` says which family a model is of.

examples:
  thinkgate parsers
  thinkgate parsers --families families.toml
  thinkgate parsers --json | jq -r '.[].name'
"""

INSPECT_EPILOG = """\
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
