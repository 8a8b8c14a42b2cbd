"""`SynthesisProgram`: words the findings of several agents as one answer. It checks nothing; numbers are checked by its caller."""

from contextlib import nullcontext

import dspy

from service.contracts.lm import Finding, SynthesisQuestion
from service.contracts.model import JsonObject
from signatures.instructions import guarded
from signatures.inventory import INVENTORY
from signatures.prompting import PLAIN, Model
from signatures.quoting import quote
from signatures.response import ResponseSynthesis
from signatures.states import load_state

QUERY_CHARACTERS = 2_000
FINDING_CHARACTERS = 600
NOTES = 5


class SynthesisProgram(dspy.Module):  # type: ignore[misc]  # dspy is untyped
    """Asks the given LM, or that of the `dspy.context`."""

    def __init__(self, model: Model | None = None) -> None:
        super().__init__()
        self.synthesis = dspy.Predict(ResponseSynthesis)
        self._model = model

    def load_programs(self, programs: JsonObject) -> "SynthesisProgram":
        """Load the optimized state of the predictor, if there is one (`signatures.states`).

        Raises:
            ValueError: it is not a predictor's state.
        """
        load_state(self, "synthesis", programs)
        return self

    async def aforward(self, question: SynthesisQuestion) -> dspy.Prediction:
        """Return a prediction with `response_text`."""
        call, model, signature = INVENTORY["synthesis"], self._model, self.synthesis.signature
        signature = signature.with_instructions(guarded(signature.instructions, signature.output_fields))
        with nullcontext() if model is None else dspy.context(lm=model.lm, adapter=model.style.adapter):
            return await self.synthesis.acall(
                **inputs_of(question), signature=signature, config=(model.style if model is not None else PLAIN).settings(call)
            )


def inputs_of(question: SynthesisQuestion) -> dict[str, str]:
    """Return the signature's inputs."""
    findings = "\n\n".join(_block(finding) for finding in question.findings)
    return {"query": quote(question.query, QUERY_CHARACTERS), "findings": findings}


def _block(finding: Finding) -> str:
    evidence = [f"- evidence: {quote(note, FINDING_CHARACTERS)}" for note in finding.evidence[:NOTES]]
    caveats = [f"- caveat: {quote(note, FINDING_CHARACTERS)}" for note in finding.caveats[:NOTES]]
    return "\n".join((f"{finding.agent_id}: {quote(finding.summary, FINDING_CHARACTERS)}", *evidence, *caveats))
