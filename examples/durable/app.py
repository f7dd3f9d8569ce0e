"""Durable runs of one agent: `swink worker app:durable` runs them, `swink submit app:durable support "…"` queues them.

SWINK_DURABLE_URL names the store; without it, the store is a file in the data folder. The model's key comes from the
environment, here from ANTHROPIC_API_KEY.
"""

from swink_agent import Agent, Defer, ProposedCall, tool
from swink_agent.durable import Durable

durable = Durable()


@tool
def order_status(order: int) -> str:
    """Says what became of an order."""
    return f"order {order} was delivered yesterday"


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Pays an order back."""
    return f"order {order} is paid back"


def ask_a_person(call: ProposedCall) -> Defer:
    """Leaves the decision to a person, who answers the run: `swink runs answer ID CALL --approve --by NAME`."""
    return Defer(f"{call.name} pays money")


@durable.agent("support", limit=20, limit_per_key=2)
def support() -> Agent:
    """Called for each attempt, in a worker."""
    return Agent(
        "anthropic:claude-sonnet-4-5",
        system_prompt="You answer customers of a shop. Look the order up before you refund it.",
        tools=[order_status, refund],
        approve=ask_a_person,
    )
