"""What synthesis is optimized on: logged requests with what the agents found, and what can be checked of a text about it.

No judge model is asked. A text is whole if it states every number of each finding's summary, or, where a summary has none, most of its
words, and gives no number that no finding gives: what a reader would be misled by, and what a program can be right or wrong in.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import dspy
import numpy as np

from optimizers.dataset import Row
from optimizers.observations import session_key
from optimizers.scrub import Scrubber
from optimizers.trainee import Task
from service.adapters.answer_log import LoggedAnswer
from service.adapters.number_check import foreign_numbers
from service.adapters.text_check import RESPONSE_CHARACTERS, checked_text
from service.contracts.handoff import HandoffResult
from service.contracts.lm import Finding, LMFailure, SynthesisQuestion
from service.contracts.output import AgentResult, AgentStatus
from service.stages.synthesis import finding_of
from signatures.composition import FINDING_CHARACTERS, inputs_of
from signatures.feedback import feedback_on_text
from signatures.quoting import quote

WHOLE = "whole"
MOST_READ = 5_000  # of the latest requests
MOST_OF_A_SESSION = 20
DEMONSTRATIONS = 2  # each holds whole findings, and every answer has to read them
LONGEST_SHOWN = 600  # characters of an example in a prompt that asks for a better instruction
MOST_WORDS = 0.5  # share of a summary's longer words that a text about it has at least, where there is no number
_LONGER_WORD = re.compile(r"[^\W\d_]{5,}")


@dataclass(frozen=True, slots=True)
class LoggedQuestion:
    """A request with its findings, and the session and tenant that it is of."""

    question: SynthesisQuestion
    session: int
    tenant: str = ""


def read_questions(answers: Iterable[LoggedAnswer], scrub: Scrubber) -> list[LoggedQuestion]:
    """Return requests with what was found, each text once, some of each session, without personal data."""
    found: dict[str, LoggedQuestion] = {}
    of_session = Counter[int]()
    for answer in answers:
        known = (answer.user_id, answer.session_id)
        findings = [_scrubbed(one, scrub, known) for one in map(_finding, answer.output.agent_results) if one is not None]
        query = scrub(answer.query, known)
        key, session = Row(query, "").key, session_key(answer.tenant, answer.session_id)
        if findings and query.strip() and key not in found and of_session[session] < MOST_OF_A_SESSION:
            of_session[session] += 1
            found[key] = LoggedQuestion(
                SynthesisQuestion(query=query, findings=tuple(findings), router_version="", programs={}), session, answer.tenant
            )
    return list(found.values())


def split(logged: Sequence[LoggedQuestion], sizes: Sequence[int], seed: int) -> list[list[LoggedQuestion]]:
    """Split by session, at random, into parts of about these sizes; where there are too few, each gets its share of what there is."""
    sessions = sorted({one.session for one in logged})
    place = dict(zip(sessions, np.random.default_rng(seed).permutation(len(sessions)).tolist(), strict=True))
    ordered = sorted(logged, key=lambda one: place[one.session])
    total = min(sum(sizes), len(ordered))
    ends = np.rint(np.cumsum(sizes) * total / sum(sizes)).astype(int).tolist()
    part_of = dict[int, int]()
    for i, one in enumerate(ordered[:total]):
        part_of.setdefault(one.session, next(part for part, end in enumerate(ends) if i < end))
    return [[one for one in ordered[:total] if part_of[one.session] == part] for part in range(len(sizes))]


def judge(text: str, question: SynthesisQuestion) -> str:
    """Return `WHOLE`, or the first flaw of a text (the keys of `signatures.feedback.FLAWS`)."""
    if not text.strip() or len(text.strip()) > RESPONSE_CHARACTERS:
        return "no usable text"
    if isinstance(checked_text(text, question.findings), LMFailure):
        return "a number of its own"
    return "a finding left out" if any(_left_out(finding, text) for finding in question.findings) else WHOLE


class _Example(dspy.Example):  # type: ignore[misc]  # dspy is untyped
    """An example that shows itself in a line: an optimizer prints them into prompts."""

    def __repr__(self) -> str:
        return quote(f"query: {self.query} | findings: {self.findings}", LONGEST_SHOWN)


def example_of(logged: LoggedQuestion) -> dspy.Example:
    """Return a request with its findings as an example; what a right text would be, nobody wrote."""
    return _Example(question=logged.question, **inputs_of(logged.question)).with_inputs("question")


def _flaw(example: dspy.Example, answer: dspy.Prediction) -> str:
    return judge(str(answer.get("response_text", "")), example.question)


TASK = Task(
    predictors=("synthesis",),
    right=lambda example, answer: _flaw(example, answer) == WHOLE,
    feedback=lambda example, answer: feedback_on_text(_flaw(example, answer)),
    labelled=False,
    demonstrations=DEMONSTRATIONS,
)


def _left_out(finding: Finding, text: str) -> bool:
    summary = quote(finding.summary, FINDING_CHARACTERS)
    if any(character.isdigit() for character in summary):
        return bool(foreign_numbers(summary, [text]))
    words = {word.lower() for word in _LONGER_WORD.findall(summary)}
    said = {word.lower() for word in _LONGER_WORD.findall(text)}
    return len(words & said) < MOST_WORDS * len(words)


def _finding(answer: AgentResult) -> Finding | None:
    result = answer.result
    if answer.status not in (AgentStatus.SUCCESS, AgentStatus.PARTIAL) or not isinstance(result, dict):
        return None
    read = {name: result[name] for name in ("primary_output", "evidence", "caveats") if name in result}
    if not read:
        return None
    try:
        return finding_of(answer.agent_id, HandoffResult.model_validate({**read, "confidence": answer.confidence}))
    except ValueError:  # what another version stored
        return None


def _scrubbed(finding: Finding, scrub: Scrubber, known: tuple[str, ...]) -> Finding:
    return Finding(
        agent_id=finding.agent_id,
        summary=scrub(finding.summary, known),
        evidence=tuple(scrub(note, known) for note in finding.evidence),
        caveats=tuple(scrub(note, known) for note in finding.caveats),
    )
