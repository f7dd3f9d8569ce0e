"""Gets a value instead of text. If the answer does not fit the type, the model reads what is wrong and tries again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from swink_agent import Agent
from swink_agent.testing import call, scripted


@dataclass
class Recipe:
    name: Annotated[str, "the dish, as on a menu"]
    minutes: int
    ingredients: list[str]


MODEL = scripted(
    call("final_answer", name="Pancakes", minutes="about twenty", ingredients=["flour"]),
    call("final_answer", name="Pancakes", minutes=20, ingredients=["flour", "milk", "eggs"]),
)


def main() -> None:
    agent = Agent("scripted:demo", stream_fn=MODEL)
    recipe = agent.structured_output_sync("A quick breakfast, please.", Recipe)
    print(f"{recipe.name}: {recipe.minutes} minutes, {len(recipe.ingredients)} ingredients")


if __name__ == "__main__":
    main()
