"""Routing: the cascade. Rules, then the caller's own intent, the student, the LM and the safe default, as far as the policy wants.

Touches no network but the LM, and that within the decision's deadline: whatever the LM does, the student's answer is at hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from service.catalog.model import Catalog
from service.contracts.decision import Action, RouteDecision, Rung
from service.contracts.lm import AgentOption, LMFailure, LMVerdict
from service.contracts.notice import INTENT_FROM_HISTORY, LANGUAGE_NOT_READ, Notice
from service.deadline import Deadline
from service.errors import ErrorCode
from service.ids import new_id
from service.ports import Predictors
from service.programs import NO_ROUTER, Router
from service.routing.exploration import draw
from service.routing.lm_question import ask_about
from service.routing.plain import plainly_agrees, plainly_commands
from service.routing.policy import NEVER, Policy, Step
from service.routing.replies import Reply, ask
from service.stages.intent import Understanding
from service.stages.plan import Plan, plan
from service.stages.triage import Admitted

RULES_POLICY = "rules"
COURTESY = "A greeting or thanks needs no agent."
NAMED_CANDIDATES = 3  # how many candidates a clarifying question names
LM_RESERVE = 0.15  # seconds of the decision's time that the LM may not use, for what comes after it


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome of a rung, before it is written down as a `RouteDecision`."""

    action: Action
    rung: Rung
    rationale: str
    intent: str | None = None
    confidence: float = 0.0
    primary_agent: str | None = None
    secondary_agents: tuple[str, ...] | None = None
    question: str | None = None
    warnings: tuple[Notice, ...] = ()
    propensity: float = 1.0
    alternative: str | None = None


class Route:
    """`Understanding` → `RouteDecision`.

    Args:
        predictors: the LM rung, or None when no LM is configured.
        lm: the LM's name, for the policy.
        exploration: how often the second of two nearly equal intents is carried out.
    """

    def __init__(self, *, catalog: Catalog, predictors: Predictors | None, lm: str | None, exploration: float = 0.0) -> None:
        self._catalog = catalog
        self._predictors = predictors
        self._lm = lm
        self._exploration = exploration

    async def __call__(
        self, query_id: UUID, admitted: Admitted, understanding: Understanding, router: Router | None, deadline: Deadline
    ) -> RouteDecision:
        """Go down the cascade until a rung answers."""
        choice = (
            self._by_rules(admitted)
            or self._by_caller(admitted, understanding)
            or self._by_reply(understanding, admitted.offered)
            or (await self._by_models(admitted, understanding, router, deadline) if router else self._by_default())
        )
        choice = self._explore(choice, query_id, admitted, understanding)
        choice = self._ask_first(choice, admitted, understanding, router)
        return self._write(query_id, admitted, understanding, router, choice)

    def after_failure(self, query_id: UUID, admitted: Admitted, router: Router | None) -> RouteDecision:
        """Return the safe default, for when a rung broke (the contract's ROUTING_FAILED)."""
        message = "Routing failed; the safe default answers."
        choice = self._default("A rung of the cascade failed.", Notice(code=ErrorCode.ROUTING_FAILED, message=message))
        return self._write(query_id, admitted, Understanding((), 0.0, False, admitted.entities), router, choice)

    def _write(
        self, query_id: UUID, admitted: Admitted, understanding: Understanding, router: Router | None, choice: Choice
    ) -> RouteDecision:
        spec = self._catalog.intent.get(choice.intent or "")
        agent = choice.primary_agent or (spec.primary_agent if spec else None)
        acts = choice.action is Action.DISPATCH
        others = understanding.intents[1:] if choice.intent == next(iter(understanding.intents), None) else ()
        planned = self._plan(choice, agent, others, admitted, router) if acts and agent is not None else None
        return RouteDecision(
            decision_id=new_id(),
            query_id=query_id,
            action=choice.action,
            intent=choice.intent,
            confidence=choice.confidence,
            primary_agent=agent if acts else None,
            secondary_agents=planned.secondary if planned else (),
            flow=planned.flow if planned else None,
            intents=(choice.intent, *others) if choice.intent else (),
            candidates=understanding.candidates,
            entities=understanding.entities,
            oos_score=understanding.oos_score,
            rung=choice.rung,
            router_version=router.version if router else NO_ROUTER,
            policy=router.policy.name if router else RULES_POLICY,
            propensity=choice.propensity,
            alternative=choice.alternative,
            rationale=choice.rationale,
            question=choice.question,
            asked=understanding.asked if acts else None,
            warnings=admitted.warnings + choice.warnings + (_not_carried_out(planned.left) if planned else ()),
        )

    def _plan(self, choice: Choice, agent: str, others: tuple[str, ...], admitted: Admitted, router: Router | None) -> Plan:
        return plan(
            self._catalog,
            choice.intent,
            agent,
            others=others,
            chosen_beside=choice.secondary_agents,
            depth=admitted.preferences.depth,
            unsure=router is not None and choice.rung is Rung.STUDENT and router.policy.is_unsure(choice.intent or "", choice.confidence),
            named=admitted.explicit_agent is not None,
        )

    def _by_rules(self, admitted: Admitted) -> Choice | None:
        if admitted.social:
            return Choice(Action.SOCIAL, Rung.RULES, COURTESY, confidence=1.0)
        if admitted.empty:
            return Choice(
                Action.CLARIFY, Rung.RULES, "The question holds no word.", question=f"What would you like to know? {self.offer()}"
            )
        if admitted.explicit_agent is not None:
            name = admitted.explicit_agent
            intent = self._catalog.intent_of(name) or self._catalog.fallback_intent
            return Choice(Action.DISPATCH, Rung.RULES, f"The question names the agent {name}.", intent, 1.0, name)
        return None

    def _by_caller(self, admitted: Admitted, understanding: Understanding) -> Choice | None:
        intent = admitted.caller_intent
        if intent is None or not understanding.caller_decides:
            return None
        if admitted.unknown_intent:
            return Choice(Action.DISPATCH, Rung.RULES, f"The caller's intent is unknown, so {intent} is taken.", intent, 0.0)
        said = f"The caller says {intent} with confidence {admitted.caller_confidence:.2f}."
        return Choice(Action.DISPATCH, Rung.CALLER, said, intent, admitted.caller_confidence)

    def _by_reply(self, understanding: Understanding, offered: tuple[str, ...]) -> Choice | None:
        """Carry out nothing for a mere answer, save what it chooses of what was offered."""
        chosen = understanding.chosen
        if chosen is not None:
            return Choice(Action.DISPATCH, Rung.RULES, f"The user chooses to {self._catalog.intent[chosen].wish}.", chosen, 1.0)
        match understanding.reply:
            case Reply.THANKS:
                return Choice(Action.SOCIAL, Rung.STUDENT, COURTESY, confidence=1.0)
            case Reply.DISMISSES:
                why, question = "The text turns something down.", "Then nothing more is started. What would you like to do instead?"
                return Choice(Action.CLARIFY, Rung.STUDENT, why, question=question)
            case Reply.ACCEPTS:
                question = self._question(offered) if offered else f"What would you like to do? {self.offer()}"
                return Choice(Action.CLARIFY, Rung.STUDENT, "It does not say what of it is accepted.", question=question)
            case _:
                return None

    async def _by_models(self, admitted: Admitted, understanding: Understanding, router: Router, deadline: Deadline) -> Choice:
        policy, forced = router.policy, admitted.preferences.rung
        ready = self._predictors is not None and forced != "student" and (forced == "lm" or self.lm_may_decide(router))
        if understanding.declined:
            why = "All that the question names is what is not wanted."
            return Choice(Action.CLARIFY, Rung.STUDENT, why, question=f"What would you like instead? {self.offer()}")
        step = _step(policy, understanding, lm_ready=ready)
        if forced == "lm":
            step = Step.ASK_LM
        warnings: tuple[Notice, ...] = ()
        if step is Step.ASK_LM:
            verdict = await self.ask_lm(admitted, understanding, router, deadline)
            if isinstance(verdict, LMVerdict):
                return Choice(
                    Action.DISPATCH,
                    Rung.LM,
                    verdict.rationale or f"The LM chose {verdict.primary_agent}.",
                    verdict.intent,
                    verdict.confidence,
                    verdict.primary_agent,
                    verdict.secondary_agents,
                )
            warnings = (Notice(code=f"lm_{verdict.reason}", message=f"The LM did not decide: {verdict.detail}"),)
            step = _step(policy, understanding, lm_ready=False)
        return self._by_student(understanding, policy, step, warnings)

    def _by_student(self, understanding: Understanding, policy: Policy, step: Step, warnings: tuple[Notice, ...]) -> Choice:
        intent, probability = understanding.intents[0], understanding.confidence
        if step is Step.REFUSE and understanding.language is not None:
            message = f"The question seems to be in a language that this router does not read ({understanding.language})."
            warnings += (Notice(code=LANGUAGE_NOT_READ, message=message),)
            return Choice(Action.REFUSE, Rung.STUDENT, message, intent, probability, warnings=warnings)
        if step is Step.REFUSE:
            why = f"Out-of-scope score {understanding.oos_score:.3f} is above {policy.refuse_above:.3f}."
            return Choice(Action.REFUSE, Rung.STUDENT, why, intent, probability, warnings=warnings)
        after = " after what was said before" if understanding.in_context else ""
        of_first = ", the first" if len(understanding.intents) > 1 else ""
        reading = f"The student reads {' and '.join(understanding.intents)}{after}{of_first} with probability {probability:.2f}"
        if step is Step.CLARIFY and understanding.described:
            why = f"{reading}; one has no labelled requests, only a description."
            return Choice(Action.CLARIFY, Rung.STUDENT, why, intent, probability, question=self._clarifying_question(understanding))
        if step is Step.CLARIFY:
            why = f"{reading}; below {policy.clarify_below:.2f} a question costs less than a wrong agent."
            question = self._clarifying_question(understanding)
            return Choice(Action.CLARIFY, Rung.STUDENT, why, intent, probability, question=question, warnings=warnings)
        if understanding.carried:
            message = f"It is what was said before that tells {intent}, not the text; no risk target is proven."
            warnings += (Notice(code=INTENT_FROM_HISTORY, message=message),)
        if understanding.described:
            message = f"{' and '.join(understanding.described)}: no labelled requests, only a description; no risk target is proven."
            warnings += (Notice(code="intent_without_examples", message=message),)
        elif probability < (proven := policy.act_from(intent)):
            where = f"below {proven:.2f}" if proven < NEVER else "of this intent"
            message = f"{intent} has probability {probability:.2f}; {where} no risk target is proven."
            warnings += (Notice(code="low_routing_confidence", message=message),)
        return Choice(Action.DISPATCH, Rung.STUDENT, f"{reading}.", intent, probability, warnings=warnings)

    def _explore(self, choice: Choice, query_id: UUID, admitted: Admitted, understanding: Understanding) -> Choice:
        """Carry out the second likeliest intent now and then, where it is nearly as likely and neither agent does what cannot be undone."""
        plain = choice.action is Action.DISPATCH and choice.rung is Rung.STUDENT and admitted.preferences.rung is None
        told = len(understanding.intents) > 1 or understanding.described or understanding.carried
        if not plain or told or len(understanding.candidates) < 2:
            return choice
        first, second = understanding.candidates[:2]
        agents = {self._catalog.intent[one.intent].primary_agent for one in (first, second)}
        if choice.intent != first.intent or len(agents) < 2 or not all(self._catalog.agent[name].idempotent for name in agents):
            return choice
        drawn = draw((first.intent, first.probability), (second.intent, second.probability), self._exploration, query_id)
        if drawn is None:
            return choice
        choice = replace(choice, propensity=drawn.propensity, alternative=drawn.alternative)
        if drawn.intent == first.intent:
            return choice
        why = f"{choice.rationale} {second.intent} is nearly as likely, and tried now and then."
        return replace(choice, intent=second.intent, confidence=second.probability, rationale=why)

    def _ask_first(self, choice: Choice, admitted: Admitted, understanding: Understanding, router: Router | None) -> Choice:
        """Ask before work that cannot be undone, unless the user plainly commands it or agrees to it, or the caller decides."""
        intent = choice.intent
        if choice.action is not Action.DISPATCH or choice.rung is Rung.CALLER or intent is None:
            return choice
        primary = self._catalog.intent[intent].primary_agent
        agent = choice.primary_agent or primary
        if self._catalog.agent[agent].idempotent:
            return choice
        commands = self._catalog.commands_of(agent)
        if understanding.chosen is not None:
            plain = admitted.placed or plainly_agrees(admitted.text, commands) or plainly_commands(admitted.text, commands)
        elif admitted.explicit_agent is not None:
            _, _, told = admitted.text.partition(" ")  # behind the agent's name
            plain = not commands or plainly_commands(told, commands)
        else:
            sure = choice.rung is not Rung.STUDENT or router is None or router.policy.is_sure(intent, choice.confidence)
            agrees = intent in admitted.offered and plainly_agrees(admitted.text, commands)
            plain = sure and not understanding.carried and (agrees or plainly_commands(admitted.text, commands))
        if plain:
            return choice
        why = f"{choice.rationale} But that is no plain command, and what cannot be undone is asked about."
        question = self._question((intent,)) if agent == primary else f"What should {agent} do? Begin with one of: {', '.join(commands)}."
        return replace(choice, action=Action.CLARIFY, rationale=why, primary_agent=None, question=question)

    def _by_default(self) -> Choice:
        message = "No router version is loaded; the safe default answers. What is missing is said by: pointsman doctor"
        return self._default("No router version is loaded.", Notice(code="no_router", message=message))

    def _default(self, rationale: str, warning: Notice) -> Choice:
        agent = self._catalog.default_agent
        intent = self._catalog.intent_of(agent) or self._catalog.fallback_intent
        return Choice(Action.DISPATCH, Rung.SAFE_DEFAULT, rationale, intent, 0.0, agent, warnings=(warning,))

    def lm_may_decide(self, router: Router) -> bool:
        """Say whether there is an LM, and this router lets it decide what the student is unsure of."""
        return self._predictors is not None and router.policy.lm_may_decide(self._lm or "")

    async def ask_lm(self, admitted: Admitted, understanding: Understanding, router: Router, deadline: Deadline) -> LMVerdict | LMFailure:
        """Ask the LM about a request that the student has read."""
        if self._predictors is None:
            return LMFailure(reason="not_configured", detail="no LM is configured (POINTSMAN_LM)")
        timeout = deadline.left - LM_RESERVE
        if timeout <= 0.0:
            return LMFailure(reason="timeout", detail="no time is left for it")
        question = ask_about(
            admitted.text,
            [c.intent for c in understanding.candidates[: router.policy.offered(next(iter(understanding.intents), ""))]],
            understanding.examples(),
            self._catalog,
            router_version=router.version,
            programs=router.programs,
            history=admitted.history,
            entities=understanding.entities,
        )
        verdict = await self._predictors.route(question, timeout=timeout)
        if isinstance(verdict, LMVerdict) and not _keeps_to(question.options, verdict):
            return LMFailure(reason="invalid_output", detail="it chose something that was not among its options")
        return verdict

    def _clarifying_question(self, understanding: Understanding) -> str:
        return self._question([c.intent for c in understanding.candidates[:NAMED_CANDIDATES]])

    def _question(self, intents: Sequence[str]) -> str:
        return ask([self._catalog.intent[i].wish for i in intents])

    def offer(self) -> str:
        """Say in one sentence what the catalogue can do."""
        return f"I can help you to {_join([i.wish for i in self._catalog.intents])}."


def _step(policy: Policy, understanding: Understanding, *, lm_ready: bool) -> Step:
    described, foreign = bool(understanding.described), understanding.language is not None
    intent = next(iter(understanding.intents), "")
    return policy.step(intent, understanding.confidence, understanding.oos_score, lm_ready=lm_ready, described=described, foreign=foreign)


def _not_carried_out(left: tuple[str, ...]) -> tuple[Notice, ...]:
    """Say what else was asked for and is not done along with the first."""
    if not left:
        return ()
    return (Notice(code="further_intents", message=f"Also asked for and not carried out yet: {', '.join(left)}."),)


def _keeps_to(options: tuple[AgentOption, ...], verdict: LMVerdict) -> bool:
    agents = {option.name for option in options}
    return verdict.intent in {option.intent for option in options} and agents.issuperset((verdict.primary_agent, *verdict.secondary_agents))


def _join(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{'; '.join(phrases[:-1])}; or {phrases[-1]}"
