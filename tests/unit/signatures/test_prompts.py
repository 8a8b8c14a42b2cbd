"""What a model gets to read, as text files that a person reviews, and what the adapters make of its answers."""

from dataclasses import replace
from pathlib import Path

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from hypothesis import given
from hypothesis import strategies as st

from service.contracts.lm import Finding, SynthesisQuestion
from signatures.adapter import CompactAdapter
from signatures.composition import SynthesisProgram
from signatures.intent import IntentClassification
from signatures.narrowing import narrow
from signatures.program import RoutingProgram
from signatures.prompting import style_for
from signatures.quoting import cut, quote
from signatures.routing import AgentRouting
from signatures.small_adapter import SmallModelAdapter
from tests.unit.signatures.questions import QUESTION
from tests.unit.signatures.scripted import ScriptedEngine, scripted_lm

SNAPSHOTS = Path(__file__).parent / "snapshots"
ANSWERS = {
    "hosted/model": (
        '{"intent": "causal_impact", "sub_intent": "dip in TRx", "confidence": 0.9}',
        '{"primary_agent": "causal_impact", "secondary_agents": [], "routing_confidence": 0.8, "routing_rationale": "asks for causes"}',
    ),
    "local/model": ('"causal_impact"', '"causal_impact"'),
}


def _rendered(engine: ScriptedEngine) -> list[str]:
    return [f"[system]\n{r.system}\n\n" + "\n\n".join(f"[{m.role}]\n{m.text}" for m in r.messages) + "\n" for r in engine.requests]


@pytest.mark.parametrize("model", ANSWERS)
async def test_the_rendered_prompts_are_the_reviewed_ones(model: str) -> None:
    """Both signatures, with history, entities and examples, render as the committed text files say."""
    style = style_for(model)
    lm, engine = scripted_lm(*ANSWERS[model])

    with dspy.context(lm=lm, adapter=style.adapter, trace=None):
        await RoutingProgram(budget=replace(style.budget, unoptimized_routing=True)).acall(question=QUESTION)

    for name, prompt in zip(("intent", "routing"), _rendered(engine), strict=True):
        assert prompt == (SNAPSHOTS / f"{name}.{model.partition('/')[0]}.txt").read_text()


async def test_the_prompt_of_synthesis_is_the_reviewed_one() -> None:
    """Findings are quoted, a block an agent, with evidence and caveats."""
    lm, engine = scripted_lm('{"response_text": "Share fell."}')
    finding = Finding(agent_id="gap_analyzer", summary="Share fell 12%.", evidence=("Based on 3 regions.",), caveats=("One quarter only.",))
    question = SynthesisQuestion(query="Where do we lose share?", findings=(finding,), router_version="1", programs={})

    with dspy.context(lm=lm, adapter=CompactAdapter(), trace=None):
        await SynthesisProgram().acall(question=question)

    assert _rendered(engine) == [(SNAPSHOTS / "synthesis.hosted.txt").read_text()]


def test_the_system_message_is_the_same_for_every_question() -> None:
    """Labels stand in the user message, so that an LM server can keep the system message in its prefix cache."""
    for adapter in (CompactAdapter(), SmallModelAdapter()):
        one, two = (adapter.format_system_message(narrow(AgentRouting, labels)) for labels in (("a", "b"), ("c",)))
        assert one == two


def test_a_small_models_schema_lists_every_answer() -> None:
    """The grammar leaves nothing but a label of the question."""
    schema = SmallModelAdapter().response_schema(narrow(IntentClassification, ("a", "b")))

    assert schema == {"enum": ["a", "b"]}


def test_a_hosted_models_schema_has_types_and_labels_only() -> None:
    """Hosted APIs refuse bounds such as maxLength in strict schemas."""
    schema = CompactAdapter().response_schema(narrow(AgentRouting, ("a", "b")))

    assert schema["properties"] == {
        "primary_agent": {"type": "string", "enum": ["a", "b"]},
        "secondary_agents": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        "routing_confidence": {"type": "number"},
        "routing_rationale": {"type": "string"},
    }


@pytest.mark.parametrize(
    "completion", ["", "hello", "[]", "[1, 2]", '"c"', '{"intent": "a"}', "[" * 5_000, "x" * 30_000, '["a","","high"]', "null"]
)
def test_an_answer_of_another_form_is_a_parse_error(completion: str) -> None:
    """Whatever the model writes instead of an answer, it is one kind of error."""
    for adapter in (CompactAdapter(), SmallModelAdapter()):
        with pytest.raises(AdapterParseError):
            adapter.parse(narrow(IntentClassification, ("a", "b")), completion)


@pytest.mark.parametrize(
    "text",
    [
        "a [[ ## primary_agent ## ]] b",
        "a [[[[ ## x ## ]] ## y ## ]] b",
        "a <|im_end|> b",
        "a\x00\x1b\u2028\u202e b",
        "a <|<|x|>|> b",
        "a [[ ## open\nb",
        "a \ud800 b",
    ],
)
def test_quoted_text_loses_what_looks_like_the_prompt(text: str) -> None:
    """Field markers, chat-template tokens, control and direction characters are gone; words stay."""
    quoted = quote(text, 100)

    assert quoted.startswith("a")
    assert not any(mark in quoted for mark in ("[[ ##", "<|", "|>", "\x00", "\x1b", "\u2028", "\u202e", "\ud800", "\n"))


@given(st.text(), st.integers(min_value=20, max_value=60))
def test_quoted_text_keeps_to_its_limit_and_one_line(text: str, limit: int) -> None:
    """Quoting is total, bounded and idempotent."""
    quoted = quote(text, limit)

    assert len(quoted) <= limit
    assert "\n" not in quoted
    assert quote(quoted, limit) == quoted


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    """The request stands in one of the two more often than in the middle."""
    shortened = cut("begin " + "x" * 5_000 + " end", 100)

    assert shortened.startswith("begin")
    assert shortened.endswith(" end")
    assert len(shortened) <= 100
