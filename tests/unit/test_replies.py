"""Short answers are told from requests; an option is chosen by its place or its word; an offer is found in what was said."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.routing.encoder import Encoder
from service.routing.label_free import packaged
from service.routing.replies import Reply, choose, offer_of, place_of, read_replies
from tests.conftest import ROOT

ANSWERS = {
    "yes, do that please": Reply.ACCEPTS,
    "oh yes, go for it": Reply.ACCEPTS,
    "no, leave it please": Reply.DISMISSES,
    "nope, stop right there": Reply.DISMISSES,
    "no thanks, not today": Reply.DISMISSES,
    "thank you so much, bye": Reply.THANKS,
    "great, thanks for that": Reply.THANKS,
    "please tell me more about that": Reply.CONTINUES,
    "could you please go on": Reply.CONTINUES,
}
REQUESTS = [
    "retrain the churn model",
    "what drove the decline of NBRx in Ohio",
    "forecast TRx for Q3",
    "stop calling the low-value accounts and plan a new split",
    "play some music",
    "is the pipeline up?",
    "book me a table for two",
]
OPTIONS = ["get a forecast or a likelihood", "have a result, score, method or term explained", "plan a test or pilot"]
CHOSEN: dict[str, int | None] = {
    "2": 1,
    "#2": 1,
    "2)": 1,
    "the second": 1,
    "The second one, please.": 1,
    "option 3": 2,
    "the last one": 2,
    "first": 0,
    "yes, the first option": 0,
    "the forecast please": 0,
    "explain": 1,
    "i want it explained": 1,
    "a pilot": 2,
    "b)": 1,
    "option (c)": 2,
    "d)": None,
    "4": None,
    "the fourth": None,
    "neither": None,
    "not the forecast": None,
    "forecast or pilot": None,
    "first check whether the model has drifted": None,
    "something else": None,
    "no, 1": None,
    "no, the last one": None,
    "a": None,
    "-1": None,
    "one?": None,
    "#" * 49 + "x": None,
    "no." * 19: None,
    "what is a pilot?": None,
    "the pilot failed": None,
    "test me": None,
    "a forecast of the weather": None,
    "": None,
    "2" + "." * 100: None,
}
OFFERS = {
    "Drift is at 0.3. Shall I retrain it?": "retrain it?",
    "Done. Do you want me to roll back to 11?": "roll back to 11?",
    "I can fit one on data up to June. Would you like that?": "I can fit one on data up to June.",
    "Would you like a plan that shifts calls? I think it pays.": "a plan that shifts calls?",
    "The model is ready.": "The model is ready.",
    "Let me know if you'd like me to deploy it.": "deploy it.",
    "": "",
    "  ": "",
}


@pytest.mark.parametrize(("text", "reply"), ANSWERS.items(), ids=ANSWERS)
def test_an_answer_is_known_by_what_it_does(encoder: Encoder, text: str, reply: Reply) -> None:
    """In words that the numbers were not learned from."""
    learned = {json.loads(line)["text"] for line in (ROOT / "datasets/replies/train.jsonl").read_text().splitlines()}

    assert text not in learned
    assert read_replies(encoder.encode(text).vector[None], packaged()) == [reply]


@pytest.mark.parametrize("text", REQUESTS)
def test_a_request_is_no_answer(encoder: Encoder, text: str) -> None:
    """Of any catalogue, and though it holds a word of an answer."""
    assert read_replies(encoder.encode(text).vector[None], packaged()) == [Reply.SAYS]


def test_many_texts_are_told_as_each_alone(encoder: Encoder) -> None:
    """In their order."""
    vectors = np.stack([e.vector for e in encoder.encode_many([*ANSWERS, *REQUESTS])])

    assert read_replies(vectors, packaged()) == [read_replies(v[None], packaged())[0] for v in vectors]


def chosen(text: str, options: list[str]) -> int | None:
    """Return the place of the option that a text chooses, as triage finds it."""
    place = place_of(text, len(options))
    return place if place is not None else choose(text, options)


@pytest.mark.parametrize(("text", "place"), CHOSEN.items(), ids=[t[:40] for t in CHOSEN])
def test_an_option_is_chosen_by_its_place_or_a_word_of_its_own(text: str, place: int | None) -> None:
    """A text that says more, or fits several, chooses none."""
    assert chosen(text, OPTIONS) == place


@given(st.text(max_size=80), st.lists(st.text(max_size=30), max_size=4))
def test_choosing_is_total(text: str, options: list[str]) -> None:
    """Whatever is said and asked, the place is one of the options."""
    place = chosen(text, options)

    assert place is None or 0 <= place < len(options)


@pytest.mark.parametrize(("answer", "offer"), OFFERS.items(), ids=[a[:40] for a in OFFERS])
def test_an_offer_is_the_last_question_or_sentence(answer: str, offer: str) -> None:
    """With the sentence before where the question itself names nothing."""
    assert offer_of(answer) == offer
