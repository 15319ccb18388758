"""Use the server from OpenAI's own client library: `thinkgate serve` in one process, the client in another."""

from __future__ import annotations

import re
import subprocess
import sys

from openai import OpenAI

from engine.pocket.orders import Order


def main() -> None:
    command = [sys.executable, "-m", "middleware.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            found = next(filter(None, (re.search(r" on (http\S+)", line) for line in server.stderr)))
            with OpenAI(base_url=found[1], api_key="none") as client:
                completion = client.chat.completions.parse(
                    model="local/pocket-r1",
                    messages=[{"role": "user", "content": "I'll take 2 rugs at 30 francs each, please."}],
                    response_format=Order,
                )
        finally:
            server.terminate()

    message = completion.choices[0].message
    print("thinking:", (message.model_extra or {})["reasoning_content"])
    print("object:  ", message.parsed)
    print("usage:   ", completion.usage)
    assert isinstance(message.parsed, Order)
    assert (message.model_extra or {})["reasoning_content"]
    assert server.returncode == 0


if __name__ == "__main__":
    main()
