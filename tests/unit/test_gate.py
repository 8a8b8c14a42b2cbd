"""The gate is code: it denies by default, never widens a permission, and plans a chain of agents that may and can be called."""

from collections.abc import Set as AbstractSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.loader import load_catalog
from service.catalog.model import TEMPLATE, Agent, Catalog
from service.contracts.caller import Caller
from service.contracts.decision import Action
from service.contracts.query import EntityType
from service.errors import ErrorCode
from service.flows.flow import Verdict
from service.stages.gate import Gate, missing_permissions
from tests.unit.turns import a_decision, an_entity, first_part

CATALOG = load_catalog()
ANYONE = Caller()
EVERY_TIER = frozenset(f"tier:{n}" for n in range(6))


def gate(
    agent: str | None = "causal_impact",
    *,
    caller: Caller = ANYONE,
    down: AbstractSet[str] = frozenset(),
    catalog: Catalog = CATALOG,
    action: str = "dispatch",
    kinds: tuple[str, ...] = (),
) -> Verdict:
    """Let the gate judge a decision for an agent."""
    decision = a_decision(agent, action=action, entities=[an_entity(kind, "x") for kind in kinds])
    return Gate(catalog=catalog)(decision, caller, lambda a: a.name not in down)


def holding(*permissions: str) -> Caller:
    """Return a caller whose key has these permissions only."""
    return Caller(tenant="acme", permissions=frozenset(permissions))


def names(agents: tuple[Agent, ...]) -> list[str]:
    """Return the agents' names."""
    return [a.name for a in agents]


FALLBACKS = {  # from the specification: tier 0 none, tiers 2 and 4 explainer, tier 3 health_score, tier 5 template; never the failed agent
    "scope_definer": (["scope_definer"], False),
    "data_preparer": (["data_preparer"], False),
    "model_selector": (["model_selector"], False),
    "model_trainer": (["model_trainer"], False),
    "feature_analyzer": (["feature_analyzer"], False),
    "model_deployer": (["model_deployer"], False),
    "causal_impact": (["causal_impact", "explainer"], True),
    "gap_analyzer": (["gap_analyzer", "explainer"], True),
    "heterogeneous_optimizer": (["heterogeneous_optimizer", "explainer"], True),
    "experiment_designer": (["experiment_designer", "health_score", "explainer"], True),
    "drift_monitor": (["drift_monitor", "health_score", "explainer"], True),
    "observability_connector": (["observability_connector", "health_score", "explainer"], True),
    "health_score": (["health_score", "explainer"], True),
    "prediction_synthesizer": (["prediction_synthesizer", "explainer"], True),
    "resource_optimizer": (["resource_optimizer", "explainer"], True),
    "explainer": (["explainer"], True),
}


@pytest.mark.parametrize(("agent", "chain", "template"), [(a, *plan) for a, plan in FALLBACKS.items()], ids=FALLBACKS)
def test_each_agent_is_followed_by_its_tiers_fallback(agent: str, chain: list[str], template: bool) -> None:
    """The chain is the specification's, to its end."""
    verdict = gate(agent)

    assert (verdict.action, names(first_part(verdict).chain), first_part(verdict).ends_in_template) == (Action.DISPATCH, chain, template)
    assert (first_part(verdict).skipped, verdict.code) == ((), None)


def test_the_table_above_names_every_agent() -> None:
    """No agent of the catalogue is left untested."""
    assert set(FALLBACKS) == set(CATALOG.agent)


@pytest.mark.parametrize("action", ["clarify", "refuse", "social"])
def test_what_is_no_dispatch_passes_as_it_is(action: str) -> None:
    """There is nothing to permit, and no agent."""
    assert gate(None, action=action, caller=holding()) == Verdict(Action(action))


@pytest.mark.parametrize("agent", [None, "", "nobody", TEMPLATE])
def test_an_agent_that_the_catalogue_lacks_is_refused(agent: str | None) -> None:
    """An unknown name reaches no network."""
    verdict = gate(agent)

    assert (verdict.action, verdict.code, first_part(verdict).chain) == (Action.REFUSE, ErrorCode.ROUTING_FAILED, ())


PERMISSIONS = {
    "no permission at all": ("causal_impact", (), ["tier:2"]),
    "another tier's": ("causal_impact", ("tier:3",), ["tier:2"]),
    "the tier's": ("causal_impact", ("tier:2",), []),
    "every tier's": ("causal_impact", ("tier:*",), []),
    "a star alone is no permission": ("causal_impact", ("*",), ["tier:2"]),
    "the agent's own is not enough": ("model_trainer", ("models:train",), ["tier:0"]),
    "the tier's is not enough": ("model_trainer", ("tier:0",), ["models:train"]),
    "neither": ("model_trainer", ("tier:5",), ["tier:0", "models:train"]),
    "both": ("model_trainer", ("tier:0", "models:train"), []),
    "both by star": ("model_trainer", ("tier:*", "models:*"), []),
    "the neighbour's": ("model_trainer", ("tier:0", "models:deploy"), ["models:train"]),
    "a prefix of the permission": ("model_trainer", ("tier:0", "models"), ["models:train"]),
}


@pytest.mark.parametrize(("agent", "held", "missing"), PERMISSIONS.values(), ids=PERMISSIONS)
def test_a_caller_reaches_an_agent_only_with_every_permission(agent: str, held: tuple[str, ...], missing: list[str]) -> None:
    """What is missing is named, and nothing is dispatched."""
    verdict = gate(agent, caller=holding(*held))

    if missing:
        assert (verdict.action, verdict.code, first_part(verdict).chain) == (Action.REFUSE, ErrorCode.PERMISSION_DENIED, ())
        assert f"the permission {', '.join(missing)}," in verdict.reason
    else:
        assert (verdict.action, first_part(verdict).chain[0].name) == (Action.DISPATCH, agent)


def test_a_fallback_that_the_caller_may_not_reach_is_skipped() -> None:
    """A fallback is no way around a permission."""
    verdict = gate("drift_monitor", caller=holding("tier:3"))

    assert names(first_part(verdict).chain) == ["drift_monitor", "health_score"]
    assert [(s.agent.name, s.code) for s in first_part(verdict).skipped] == [("explainer", ErrorCode.PERMISSION_DENIED)]
    assert first_part(verdict).ends_in_template


@pytest.mark.parametrize(
    ("down", "chain"),
    [
        ({"drift_monitor"}, ["health_score", "explainer"]),
        ({"health_score"}, ["drift_monitor", "explainer"]),
        ({"drift_monitor", "health_score"}, ["explainer"]),
        ({"drift_monitor", "health_score", "explainer"}, []),
    ],
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, set) else None,
)
def test_an_agent_that_is_down_is_skipped_and_the_next_one_tried(down: set[str], chain: list[str]) -> None:
    """Availability shortens the chain; the decision's agent stays on record."""
    verdict = gate("drift_monitor", down=down)

    assert names(first_part(verdict).chain) == chain
    assert {s.agent.name for s in first_part(verdict).skipped} == down
    assert {s.code for s in first_part(verdict).skipped} == {ErrorCode.AGENT_UNAVAILABLE}
    assert verdict.primary == CATALOG.agent["drift_monitor"]


def needing(agent: str, *kinds: EntityType) -> Catalog:
    """Return the catalogue, one agent of which needs entities."""
    agents = tuple(a.model_copy(update={"required_entities": kinds}) if a.name == agent else a for a in CATALOG.agents)
    return Catalog(
        intents=CATALOG.intents,
        agents=agents,
        terms=(),
        fallback_intent=CATALOG.fallback_intent,
        default_agent=CATALOG.default_agent,
        template_text="",
        hash="",
    )


@pytest.mark.parametrize(
    ("kinds", "question"),
    [
        ((), "Which hcp id, region do you mean?"),
        (("region",), "Which hcp id do you mean?"),
        (("brand", "region"), "Which hcp id do you mean?"),
        (("hcp_id", "region"), None),
    ],
)
def test_a_missing_entity_leads_to_a_question(kinds: tuple[str, ...], question: str | None) -> None:
    """The question names what is missing, and only that; nothing is invented."""
    catalog = needing("prediction_synthesizer", EntityType.REGION, EntityType.HCP_ID)

    verdict = gate("prediction_synthesizer", catalog=catalog, kinds=kinds)

    if question is None:
        assert verdict.action is Action.DISPATCH
    else:
        assert (verdict.action, verdict.code, verdict.reason) == (Action.CLARIFY, ErrorCode.MISSING_ENTITY, question)
        assert first_part(verdict).chain == ()


def test_permission_is_checked_before_anything_is_asked() -> None:
    """A question about entities would tell a caller of an agent that it may not reach."""
    verdict = gate("explainer", catalog=needing("explainer", EntityType.BRAND), caller=holding())

    assert verdict.code is ErrorCode.PERMISSION_DENIED


def test_a_fallback_that_needs_an_entity_is_skipped() -> None:
    """It is not called with half of what it needs."""
    verdict = gate("causal_impact", catalog=needing("explainer", EntityType.BRAND))

    assert names(first_part(verdict).chain) == ["causal_impact"]
    assert [(s.agent.name, s.code) for s in first_part(verdict).skipped] == [("explainer", ErrorCode.MISSING_ENTITY)]


permissions = st.frozensets(st.sampled_from([*sorted(EVERY_TIER), "tier:*", "models:train", "models:deploy", "models:*", "*"]))
callers = st.builds(Caller, tenant=st.just("acme"), permissions=st.none() | permissions)
kinds = st.lists(st.sampled_from(list(EntityType)), unique=True)


@given(
    agent=st.sampled_from(list(CATALOG.agent)),
    caller=callers,
    down=st.frozensets(st.sampled_from(list(CATALOG.agent))),
    needy=st.sampled_from(list(CATALOG.agent)),
    needed=kinds,
    present=kinds,
)
def test_the_chain_holds_only_agents_that_may_and_can_be_called(
    agent: str, caller: Caller, down: frozenset[str], needy: str, needed: list[EntityType], present: list[EntityType]
) -> None:
    """Permitted, available, with their entities there, each once, in the order of the catalogue's fallbacks."""
    catalog = needing(needy, *needed)

    verdict = gate(agent, caller=caller, down=down, catalog=catalog, kinds=tuple(k.value for k in present))

    for called in first_part(verdict).chain:
        assert missing_permissions(called, caller) == ()
        assert called.name not in down
        assert set(called.required_entities) <= set(present)
    planned = FALLBACKS[agent][0]
    assert names(first_part(verdict).chain) == [name for name in planned if name in names(first_part(verdict).chain)]
    if verdict.action is Action.DISPATCH:
        assert sorted([*names(first_part(verdict).chain), *(s.agent.name for s in first_part(verdict).skipped)]) == sorted(planned)
    else:
        assert (first_part(verdict).chain, verdict.code is not None) == ((), True)


@given(agent=st.sampled_from(list(CATALOG.agent)), held=permissions, more=permissions)
def test_fewer_permissions_never_reach_more_agents(agent: str, held: frozenset[str], more: frozenset[str]) -> None:
    """The gate never widens a permission."""
    narrow, wide = gate(agent, caller=holding(*held)), gate(agent, caller=holding(*held, *more))

    assert set(names(first_part(narrow).chain)) <= set(names(first_part(wide).chain))


@given(agent=st.sampled_from(list(CATALOG.agent)))
def test_a_key_without_permissions_reaches_nobody(agent: str) -> None:
    """Deny by default."""
    verdict = gate(agent, caller=holding())

    assert (verdict.action, first_part(verdict).chain) == (Action.REFUSE, ())
