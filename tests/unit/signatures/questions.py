"""A question as the service asks it, for the tests of the LM rung."""

from service.contracts.lm import AgentOption, LabelledExample, LMQuestion
from service.contracts.query import ConversationTurn, EntityType, ParsedEntity

QUESTION = LMQuestion(
    query="What caused the dip in TRx for Kisqali in July?",
    history=(ConversationTurn(role="user", content="Show me TRx by month."), ConversationTurn(role="assistant", content="Here it is.")),
    entities=(ParsedEntity(type=EntityType.BRAND, value="Kisqali"), ParsedEntity(type=EntityType.KPI, value="TRx")),
    options=(
        AgentOption(name="causal_impact", intent="causal_impact", description="Estimates what effect one thing had on another."),
        AgentOption(name="gap_analyzer", intent="gap_analysis", description="Finds where performance lags."),
        AgentOption(name="drift_monitor", intent="drift_check", description="Checks models and data for drift."),
        AgentOption(name="explainer", intent="explanation", description="Explains results in plain words."),
    ),
    examples=(
        LabelledExample(text="what drove NRx up in q2", intent="causal_impact", agent="causal_impact"),
        LabelledExample(text="which territories lag behind", intent="gap_analysis", agent="gap_analyzer"),
    ),
    router_version="7",
    programs={},
)
