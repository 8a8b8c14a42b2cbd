"""How much a prompt may say, and in which form: one choice a model, made here for serving and optimizing alike."""

import re
from dataclasses import dataclass
from typing import Any

import dspy

from signatures.adapter import CompactAdapter
from signatures.inventory import LMCall
from signatures.small_adapter import SmallModelAdapter

LOCAL_PREFIX = "local/"
THOUGHTS = 4_000  # tokens
_REASONING = re.compile(r"o[1345](-|$)|gpt-5(?!(\.\d+)*-chat)")  # OpenAI's, which refuse a temperature


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """Limits of what a question puts into a prompt: counts of examples and turns, lengths in characters.

    Without `unoptimized_routing` the second call, `AgentRouting`, is made only when its predictor has optimized demonstrations; until then
    the option that serves the intent decides. An optimizer of that signature sets it.
    """

    intent_examples: int = 6
    routing_examples: int = 6
    example_characters: int = 300
    query_characters: int = 2_000
    history_turns: int = 4
    turn_characters: int = 300
    entities_characters: int = 400
    description_characters: int = 160
    unoptimized_routing: bool = True


ROOMY = PromptBudget()
BRIEF = PromptBudget(
    intent_examples=4,
    routing_examples=0,  # the intent is known by then, and the descriptions say who serves it
    example_characters=60,
    query_characters=300,
    history_turns=2,
    turn_characters=80,
    entities_characters=80,
    description_characters=60,
    unoptimized_routing=False,  # SmolLM2-135M on 60 requests: 39 agents right by the intent alone, 26 to 30 with a plain second call
)


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """An adapter and a budget. The adapter's class name is part of a router version's manifest."""

    adapter: CompactAdapter
    budget: PromptBudget
    thinks: bool = False  # a reasoning model: it takes no temperature, and what it thinks counts as what it says

    def settings(self, call: LMCall) -> dict[str, Any]:
        """Return how an LM is asked for a call."""
        if self.thinks:
            return {"max_tokens": call.max_tokens + THOUGHTS}
        return {"temperature": call.temperature, "max_tokens": call.max_tokens}


@dataclass(frozen=True, slots=True)
class Model:
    """An LM with the style to address it in."""

    lm: dspy.BaseLM
    style: PromptStyle


PLAIN = PromptStyle(CompactAdapter(), ROOMY)


def style_for(model: str) -> PromptStyle:
    """Return the style for a model string; `local/...` is a small model behind a grammar."""
    if model.startswith(LOCAL_PREFIX):
        return PromptStyle(SmallModelAdapter(), BRIEF)
    return PromptStyle(CompactAdapter(), ROOMY, thinks=_REASONING.match(model.rpartition("/")[2].lower()) is not None)
