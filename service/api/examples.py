"""Examples for the OpenAPI document. A test posts each question and checks each answer against its contract."""

from typing import Any

_QUERY = "3f0d0c52-7a5e-4f0e-9a53-5d1b8f0e2c11"
_DECISION = "8d6a1f4e-0c2b-4b8e-8f5d-2a9c7e6b1d30"
_DISPATCH = "b7c9e1a2-3d4f-4a5b-8c6d-7e8f9a0b1c2d"

QUESTIONS: dict[str, Any] = {
    "plain": {
        "summary": "A question from a caller without a language layer",
        "value": {
            "parsed_query": {"query_id": _QUERY, "raw_query": "Did the extra rep visits really lift Kisqali TRx in the Midwest?"},
            "user_id": "u-17",
            "session_id": "s-42",
        },
    },
    "parsed": {
        "summary": "A question that a language layer has parsed",
        "value": {
            "parsed_query": {
                "query_id": "0b8f7c9a-41d6-4c7e-9b0a-6f2e5d3c1a22",
                "raw_query": "Where are we leaving Fabhalta scripts on the table?",
                "intent": "gap_analysis",
                "entities": [{"type": "brand", "value": "Fabhalta", "confidence": 0.98, "source": "exact"}],
                "confidence": 0.92,
                "ambiguity_flag": False,
                "context": None,
                "timestamp": "2026-01-15T09:30:00Z",
            },
            "user_id": "u-17",
            "session_id": "s-42",
            "conversation_history": [{"role": "user", "content": "How did Fabhalta do last quarter?"}],
            "preferences": {"max_latency_ms": 30000},
        },
    },
}

DECISION: dict[str, Any] = {
    "decision_id": _DECISION,
    "query_id": _QUERY,
    "action": "dispatch",
    "intent": "causal_impact",
    "confidence": 0.97,
    "primary_agent": "causal_impact",
    "secondary_agents": ["explainer"],
    "flow": "single",
    "intents": ["causal_impact"],
    "candidates": [{"intent": "causal_impact", "probability": 0.97}, {"intent": "explanation", "probability": 0.02}],
    "entities": [{"type": "brand", "value": "Kisqali", "confidence": 1.0, "source": "exact"}],
    "oos_score": 0.001,
    "rung": "student",
    "router_version": "1",
    "policy": "selective-risk",
    "propensity": 1.0,
    "alternative": None,
    "rationale": "The student reads causal_impact with probability 0.97.",
    "question": None,
    "asked": None,
    "warnings": [],
    "timings_ms": {"triage": 0.2, "intent": 5.1, "routing": 0.1},
}

OUTPUT: dict[str, Any] = {
    "query_id": _QUERY,
    "status": "success",
    "response_text": "Ten more visits a month raise Kisqali TRx by 0.42 a week per HCP (95 % interval 0.31 to 0.53).",
    "response_confidence": 0.88,
    "agents_dispatched": ["causal_impact"],
    "agent_results": [
        {
            "agent_id": "causal_impact",
            "agent_tier": 2,
            "status": "success",
            "result": {"primary_output": {"ate": 0.42, "confidence_interval": [0.31, 0.53]}},
            "confidence": 0.88,
            "latency_ms": 812,
            "error": None,
        }
    ],
    "citations": [{"source_type": "causal_path", "source_id": f"causal_impact:{_DISPATCH}", "relevance": 0.88}],
    "visualizations": [],
    "follow_up_suggestions": ["For which segments is the effect largest?"],
    "total_latency_ms": 830,
    "timestamp": "2026-01-15T09:30:01Z",
    "decision_id": _DECISION,
    "action": "dispatch",
    "intent": "causal_impact",
    "flow": "single",
    "rung": "student",
    "router_version": "1",
    "warnings": [],
}

FEEDBACK: dict[str, Any] = {
    "satisfaction": {"summary": "A rating from 1 to 5", "value": {"decision_id": _DECISION, "user_satisfaction": 4}},
    "correction": {"summary": "Another agent was meant", "value": {"query_id": _QUERY, "corrected_agent": "gap_analyzer"}},
}

FEEDBACK_RECEIPT: dict[str, Any] = {"decision_id": _DECISION, "signal_id": "5a1e2d3c-4b5f-4c6d-8e7f-9a8b7c6d5e4f", "reward": 0.91}

RECEIPT: dict[str, Any] = {
    "decision": DECISION,
    "tenant": "local",
    "catalog_hash": "9c1d…",
    "request_hash": "51af…",
    "request": QUESTIONS["plain"]["value"],
    "stages": {"gate": {"action": "dispatch", "flow": "single", "parts": [{"role": "asked", "chain": ["causal_impact", "explainer"]}]}},
    "output": OUTPUT,
    "signal": {
        "signal_id": "5a1e2d3c-4b5f-4c6d-8e7f-9a8b7c6d5e4f",
        "session_id": "s-42",
        "query": "Did the extra rep visits really lift Kisqali TRx in the Midwest?",
        "query_pattern": "causal_impact",
        "intent": "causal_impact",
        "entities_extracted": ["brand:Kisqali"],
        "agents_selected": ["causal_impact"],
        "routing_confidence": 0.97,
        "routing_rationale": "The student reads causal_impact with probability 0.97.",
        "agents_succeeded": 1,
        "agents_failed": 0,
        "total_latency_ms": 830.0,
        "was_rerouted": False,
        "latency_budget_ms": 120000,
    },
    "reward": 0.99,
    "committed_at": "2026-01-15T09:30:01Z",
}

WISHES: dict[str, Any] = {
    "plain": {
        "summary": "Learn from the log again, soon",
        "value": {"agent_name": "orchestrator", "signature_name": "routing", "priority": "high"},
    },
    "signals": {
        "summary": "An agent brings what it has seen itself",
        "value": {
            "agent_name": "gap_analyzer",
            "signature_name": "routing",
            "training_signals": [
                {
                    "signal_id": "c1d2e3f4-5a6b-4c7d-8e9f-0a1b2c3d4e5f",
                    "session_id": "s-77",
                    "query": "Which accounts buy less Fabhalta than their peers?",
                    "query_pattern": "gap_analysis",
                    "intent": "prediction",
                    "agents_selected": ["prediction_synthesizer"],
                    "routing_confidence": 0.61,
                    "routing_rationale": "The student reads prediction with probability 0.61.",
                    "agents_failed": 1,
                    "corrected_agent": "gap_analyzer",
                }
            ],
        },
    },
}

OPTIMIZATION: dict[str, Any] = {
    "request_id": "1f0e9d8c-7b6a-4958-8776-655443322110",
    "tenant": "local",
    "agent_name": "gap_analyzer",
    "signature_name": "routing",
    "priority": "medium",
    "status": "pending",
    "asked": 1,
    "signals": 1,
    "signals_left_out": 0,
    "created_at": "2026-01-15T09:30:00Z",
    "attempts": 0,
    "started_at": None,
    "router_version": None,
    "ruling": None,
    "reason": None,
    "finished_at": None,
}

OPTIMIZATION_DONE: dict[str, Any] = OPTIMIZATION | {
    "status": "done",
    "attempts": 1,
    "started_at": "2026-01-16T02:00:00Z",
    "router_version": "4",
    "ruling": "promote",
    "reason": "Every required step found for it.",
    "finished_at": "2026-01-16T02:03:10Z",
}

AGENT: dict[str, Any] = {
    "name": "causal_impact",
    "tier": 2,
    "description": "Estimates the adjusted effect of a treatment on an outcome, with interval and refutation tests.",
    "permissions": [],
    "timeout_ms": 120000,
    "max_retries": 2,
    "fallback": "explainer",
    "priority": 1,
    "critical_path": True,
    "idempotent": True,
    "required_entities": [],
    "intents": ["causal_impact"],
    "available": True,
    "breaker": "closed",
    "protocol": "http",
    "max_concurrent": 32,
    "receives": ["raw_query", "request", "entities", "context.treatment", "context.outcome"],
}

INTENT: dict[str, Any] = {
    "name": "causal_impact",
    "description": "Estimates the effect of an action or event on an outcome, or finds what is driving a change in it.",
    "primary_agent": "causal_impact",
    "supporting_agents": ["explainer"],
    "pipeline": [],
}

READINESS: dict[str, Any] = {
    "ready": True,
    "router_version": "1",
    "rungs": ["rules", "student", "safe_default"],
    "lm": None,
    "store": "ok",
    "notes": ["No LM is configured (POINTSMAN_LM), so unsure questions are answered by the student or with a question."],
}

NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {
        "description": "Not ready: the same body with `ready` false.",
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/Readiness"},
                "example": READINESS | {"ready": False, "router_version": None, "rungs": ["rules", "safe_default"]},
            }
        },
    }
}

METRICS = (
    "# HELP orchestrator_decisions_total Committed decisions.\n"
    "# TYPE orchestrator_decisions_total counter\n"
    'orchestrator_decisions_total{action="dispatch",intent="causal_impact",agent="causal_impact",rung="student",version="1"} 1.0\n'
)

STREAM = (
    f'event: decision\nid: 1\ndata: {{"decision":{{"decision_id":"{_DECISION}","action":"dispatch","intent":"causal_impact"}}}}\n\n'
    'event: agent_start\nid: 2\ndata: {"agent_id":"causal_impact","agent_tier":2}\n\n'
    'event: agent_end\nid: 3\ndata: {"result":{"agent_id":"causal_impact","agent_tier":2,"status":"success"}}\n\n'
    'event: partial\nid: 4\ndata: {"response_text":"Ten more visits a month raise Kisqali TRx.","agents_answered":["causal_impact"]}\n\n'
    f'event: output\nid: 5\ndata: {{"output":{{"query_id":"{_QUERY}","status":"success"}},"replayed":false}}\n\n'
)

ROLLED_BACK = {"was": "4", "now": "3"}
