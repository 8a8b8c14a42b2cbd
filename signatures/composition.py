"""`SynthesisProgram`: words the findings of several agents as one answer. It checks nothing; numbers are checked by its caller."""

from collections.abc import Sequence

import dspy

from service.contracts.lm import Finding
from signatures.inventory import INVENTORY
from signatures.quoting import quote
from signatures.response import ResponseSynthesis

QUERY_CHARACTERS = 2_000
FINDING_CHARACTERS = 600
NOTES = 5


class SynthesisProgram(dspy.Module):  # type: ignore[misc]  # dspy is untyped
    """Asks the LM of the `dspy.context`."""

    def __init__(self) -> None:
        super().__init__()
        self.synthesis = dspy.Predict(ResponseSynthesis)

    async def aforward(self, query: str, findings: Sequence[Finding]) -> dspy.Prediction:
        """Return a prediction with `response_text`."""
        call = INVENTORY["synthesis"]
        return await self.synthesis.acall(
            query=quote(query, QUERY_CHARACTERS),
            findings="\n\n".join(_block(finding) for finding in findings),
            config={"temperature": call.temperature, "max_tokens": call.max_tokens},
        )


def _block(finding: Finding) -> str:
    evidence = [f"- evidence: {quote(note, FINDING_CHARACTERS)}" for note in finding.evidence[:NOTES]]
    caveats = [f"- caveat: {quote(note, FINDING_CHARACTERS)}" for note in finding.caveats[:NOTES]]
    return "\n".join((f"{finding.agent_id}: {quote(finding.summary, FINDING_CHARACTERS)}", *evidence, *caveats))
