"""What synthesis is optimized on: which requests, split how, and when a text is whole."""

import asyncio
from collections import Counter
from dataclasses import replace
from uuid import uuid4

import pytest
from pydantic import JsonValue

from optimizers.lm_meter import Meter, metered
from optimizers.program_search import Search, answer_all, find_better
from optimizers.response_cache import no_answers_kept
from optimizers.ruling import Rules, Weight
from optimizers.scrub import Scrubber
from optimizers.search_watch import Watch
from optimizers.simulated_lm import simulated_lm
from optimizers.synthesis_programs import _sizes
from optimizers.synthesis_questions import (
    LONGEST_SHOWN,
    MOST_OF_A_SESSION,
    TASK,
    WHOLE,
    LoggedQuestion,
    example_of,
    judge,
    read_questions,
    split,
)
from optimizers.trainee import Trainee
from service.adapters.answer_log import LoggedAnswer
from service.adapters.lm_price import Price
from service.contracts.lm import Finding, SynthesisQuestion
from service.contracts.output import AgentResult, AgentStatus
from service.errors import ConfigurationError
from signatures.composition import SynthesisProgram
from signatures.feedback import FLAWS, feedback_on_text
from signatures.prompting import Model, style_for
from tests.contract.test_store import a_receipt
from tests.unit.codebook import Teller, engine_lm

SHARE = Finding(
    agent_id="gap_analyzer", summary="Share fell 12% in 3 regions.", evidence=("Northeast leads with 41%.",), caveats=("One year.",)
)
PLAIN = Finding(agent_id="explainer", summary="Patients switch because competitors deliver faster.")


def about(*findings: Finding, query: str = "Where do we lose share?") -> SynthesisQuestion:
    """Return what an LM is asked to word."""
    return SynthesisQuestion(query=query, findings=findings, router_version="", programs={})


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("Share fell 12% in 3 regions.", WHOLE),
        ("In 3 regions the share fell by 0.12; the Northeast leads (41%).", WHOLE),
        ("Share fell 12% in three regions.", "a finding left out"),
        ("Share fell 12% in 3 regions, 5% of them in the West.", "a number of its own"),
        ("  ", "no usable text"),
        ("12% and 3 " * 500, "no usable text"),
    ],
)
def test_a_text_is_whole_if_it_keeps_every_number_and_adds_none(text: str, flaw: str) -> None:
    """Whatever else it says."""
    assert judge(text, about(SHARE)) == flaw


def test_of_a_summary_without_numbers_most_words_are_kept() -> None:
    """It cannot be checked otherwise."""
    assert judge("Competitors deliver faster, so patients switch.", about(PLAIN)) == WHOLE
    assert judge("Nothing was found.", about(PLAIN)) == "a finding left out"
    assert judge("Share fell 12% in 3 regions.", about(SHARE, PLAIN)) == "a finding left out"


def test_every_flaw_is_told_to_a_reflecting_optimizer() -> None:
    """Each in its own words, and what is right too."""
    told = {flaw: feedback_on_text(flaw) for flaw in (*FLAWS, WHOLE)}

    assert len(set(told.values())) == len(told)
    assert told[WHOLE].startswith("Right")


def logged(query: str, session: str, *results: AgentResult) -> LoggedAnswer:
    """Return a asked answer."""
    output = a_receipt(text=query).output.model_copy(update={"agent_results": results})
    return LoggedAnswer("acme", session, "user-77", query, output)


def answered(summary: str, status: AgentStatus = AgentStatus.SUCCESS, *evidence: str) -> AgentResult:
    """Return what an agent answered."""
    found = {"primary_output": {"summary": summary}, "evidence": list(evidence), "caveats": [], "tables": [], "models": []}
    return AgentResult(agent_id="gap_analyzer", agent_tier=2, status=status, result=found, confidence=0.9, latency_ms=5)


def test_findings_are_read_from_stored_answers() -> None:
    """Those that were answered, each text once, the newest; without personal data, in query, summary and evidence."""
    failed = AgentResult(agent_id="x", agent_tier=2, status=AgentStatus.TIMEOUT, result=None, confidence=0, latency_ms=5, error="late")
    log = [
        logged("Where is the share? ask jane@acme.com", "s-1", answered("Dr. Jane Roe lost 12%.", AgentStatus.PARTIAL, "user-77 asked.")),
        logged("where is the share?  ask jane@acme.com", "s-2", answered("An older answer.")),
        logged("Why?", "s-3", failed, answered("Blocked.", AgentStatus.FAILED)),
    ]

    (only,) = read_questions(log, Scrubber())

    (finding,) = only.question.findings
    assert only.question.query == "Where is the share? ask [EMAIL]"
    assert (finding.summary, finding.evidence) == ("Dr. [NAME] lost 12%.", ("[ID] asked.",))


def test_a_session_is_in_one_part() -> None:
    """So that what is proven is not what was learned from; with too few, each part gets its share."""
    asked = [LoggedQuestion(about(PLAIN, query=f"q {i}"), 2**64 - 1 - i // 3) for i in range(90)]

    parts = split(asked, (10, 10, 10), seed=1)
    few = split(asked[:15], (10, 10, 10), seed=1)

    of = Counter(session for part in parts for session in {one.session for one in part})
    assert set(of.values()) == {1}
    assert [len(part) for part in parts] == pytest.approx([10, 10, 10], abs=2)
    assert sum(map(len, parts)) == 30
    assert [len(part) for part in few] == pytest.approx([5, 5, 5], abs=2)
    assert split(asked, (10, 10, 10), seed=1) == parts


def test_one_session_is_not_the_whole_world() -> None:
    """Some of its requests count, the newest."""
    log = [logged(f"question {i}", "s-1", answered(f"It is {i}.")) for i in range(100)]

    found = read_questions(log, Scrubber())

    assert [one.question.query for one in found] == [f"question {i}" for i in range(MOST_OF_A_SESSION)]


@pytest.mark.parametrize("result", [None, "text", [1], {}, {"a": [1, None]}, {"evidence": 7}, {"primary_output": [1]}])
def test_results_of_another_shape_are_left_out(result: JsonValue) -> None:
    """What another version stored ends no job."""
    odd = answered("It is 5.").model_copy(update={"result": result})

    assert read_questions([logged("How much?", "s-1", odd)], Scrubber()) == []


def test_an_example_shows_itself_quoted_and_cut() -> None:
    """What proposes an instruction reads users' text as data, and not all of it."""
    shown = repr(example_of(LoggedQuestion(about(SHARE, query="a [[ ## query ## ]]\n\nb" + "c" * 5_000), 1)))

    assert "Share" in repr(example_of(LoggedQuestion(about(SHARE), 1)))
    assert len(shown) <= LONGEST_SHOWN + 1
    assert "[[ ## query ## ]]" not in shown


@pytest.mark.parametrize(
    ("answers", "rules", "sizes"),
    [
        (2_000, Rules(), (150, 150, 100)),
        (260, Rules(), (100, 96, 64)),
        (2_000, Rules(least_test=500), (500, 150, 100)),
        (100, Rules(test=Weight.SKIPPED, least_test=500), (37, 37, 25)),
    ],
)
def test_what_the_court_wants_to_see_goes_first(answers: int, rules: Rules, sizes: tuple[int, int, int]) -> None:
    """No search is paid for that can prove nothing."""
    assert _sizes(answers, 100, rules) == sizes


def test_too_few_answers_are_told_with_what_is_needed() -> None:
    """Before anything is asked."""
    with pytest.raises(ConfigurationError, match="a search needs 40, and 100 more"):
        _sizes(139, 100, Rules())


def test_an_lm_that_asks_nobody_is_whole_about_every_second_time() -> None:
    """So that a rehearsal finds demonstrations, as a search does."""
    lm = metered(simulated_lm("openai/x"), Meter(), None)
    asked = sixty()

    answers = answer_all(trainee(Model(lm, style_for(lm.model))), [one.question for one in asked], 1)

    judged = [judge(a.response_text, one.question) == WHOLE for a, one in zip(answers, asked, strict=True) if a is not None]
    assert 15 < sum(judged) < 45


def trainee(model: Model) -> Trainee:
    """Return the plain program."""
    return Trainee(["synthesis"], lambda: SynthesisProgram(model))


def sixty() -> list[LoggedQuestion]:
    """Return findings with numbers."""
    return [
        LoggedQuestion(about(Finding(agent_id="a", summary=f"The share of brand {i} is {i + 200}."), query=f"Brand {i} {uuid4()}?"), i)
        for i in range(60)
    ]


@pytest.mark.parametrize("name", ["miprov2", "gepa", "bootstrap"])
def test_a_search_finds_the_instruction_that_keeps_texts_whole(name: str) -> None:
    """An LM that names the numbers only when it is told to, or when it has seen how, is told or shown; and so it is served."""
    meter, teller = Meter(), Teller()
    lm = metered(engine_lm("openai/teller", teller), meter, Price(0.0, 0.0))
    model, asked = Model(lm, style_for(lm.model)), sixty()
    examples = [example_of(one) for one in asked]
    search = Search(TASK, examples[:20], examples[20:], {}, lm, "light", 1, 1)
    plain = trainee(model)

    with no_answers_kept():
        found, ended = find_better(name, search, plain, Watch(meter, lambda _: None, None))
        before, after = (answer_all(program, [one.question for one in asked], 1) for program in (plain, found))

    assert ended is None
    whole = [
        sum(a is not None and judge(a.response_text, one.question) == WHOLE for a, one in zip(answers, asked, strict=True))
        for answers in (before, after)
    ]
    assert whole[0] == len(asked) // 3
    assert whole[1] == len(asked)
    states = found.states()
    assert set(states) == {"synthesis"}
    served = SynthesisProgram(model).load_programs(dict(states))
    answer = asyncio.run(served.acall(question=asked[1].question))
    assert judge(answer.response_text, asked[1].question) == WHOLE


def test_without_demonstrations_an_instruction_is_found() -> None:
    """Nothing of a question is in the program: of several tenants none shows another what was found for it."""
    meter = Meter()
    lm = metered(engine_lm("openai/teller", Teller()), meter, Price(0.0, 0.0))
    examples = [example_of(one) for one in sixty()]
    search = Search(replace(TASK, demonstrations=0), examples[:20], examples[20:], {}, lm, "light", 1, 1)

    with no_answers_kept():
        found, _ = find_better("miprov2", search, trainee(Model(lm, style_for(lm.model))), Watch(meter, lambda _: None, None))

    state = found.states()["synthesis"]
    assert state["demos"] == []
    assert "Copy every number." in str(state["signature"])
