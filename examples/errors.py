"""What happens when there is no object: typed errors that keep everything the model wrote. Needs no model."""

from __future__ import annotations

from pydantic import BaseModel

from middleware import AnswerTruncatedError, Client, ReasoningTruncatedError
from middleware.testing import ScriptedUpstream, reply


class Answer(BaseModel):
    city: str
    population: int


def main() -> None:
    upstream = ScriptedUpstream(
        [
            reply("It must be somewhere in", finish_reason="length"),
            reply("Paris.", '{"city":"Paris","popul', finish_reason="length"),
            reply("Paris.", '{"city":"Paris"}'),  # not valid: asked again, with what was wrong
            reply("The number is missing.", '{"city":"Paris","population":2100000}'),
        ]
    )
    with Client("scripted", upstream=upstream) as client:
        try:
            client.generate(Answer, "Which city?")
        except ReasoningTruncatedError as error:
            print(f"{error.message}; it had thought: {error.reasoning!r}; hint: {error.hint}")
            assert (error.phase, error.reasoning) == ("reasoning", "It must be somewhere in")

        try:
            client.generate(Answer, "Which city?")
        except AnswerTruncatedError as error:
            print(f"{error.message}; complete so far: {error.partial}")
            assert error.partial == {"city": "Paris"}

        result = client.generate(Answer, "Which city?")
        print(f"{result.output} after {result.attempts} attempts")
        assert (result.output.population, result.attempts) == (2_100_000, 2)


if __name__ == "__main__":
    main()
