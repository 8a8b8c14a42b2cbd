"""Languages: what the encoder does not read is recognised; English is not taken for something else."""

import pytest

from service.routing.encoder import Encoder
from service.routing.features import Lexicon
from service.routing.language import foreign_language

TRAINED_ON = [
    "did the rep visits lift our prescriptions",
    "is the pipeline healthy",
    "what will the forecast be",
    "can i get my actual card",
]
FOREIGN = {
    "de": "Wie hat sich das Produkt im letzten Quartal entwickelt?",
    "fr": "Pourquoi les prescriptions ont-elles baissé ?",
    "es": "¿Por qué bajaron las recetas en marzo?",
    "pl": "Dlaczego spadła liczba recept?",
    "ru": "Почему снизилось число рецептов?",
    "ar": "لماذا انخفضت الوصفات؟",
    "zh": "为什么处方量下降了？",
    "ja": "なぜ処方箋が減ったのですか？",
    "hi": "नुस्खे क्यों कम हुए?",
}
NOT_FOREIGN = [
    "Can I get an actual card",
    "Is the pipeline healthy?",
    "why?",
    "",
    "🙂🚀",
    "TRx NRx Kisqali",
    "SELECT * FROM t WHERE a = 1",
    "12345",
]


@pytest.fixture(scope="module")
def lexicon(encoder: Encoder) -> Lexicon:
    """The words of a few English requests."""
    return Lexicon.fit([encoder.encode(text).tokens for text in TRAINED_ON], most=1_000)


@pytest.mark.parametrize("placed", [True, False], ids=["in scope", "out of scope"])
@pytest.mark.parametrize(("code", "text"), FOREIGN.items(), ids=FOREIGN)
def test_a_language_that_is_not_read_is_named(encoder: Encoder, lexicon: Lexicon, code: str, text: str, placed: bool) -> None:
    """By its ISO code, even where the student thinks that it can place the text."""
    assert foreign_language(text, encoder.encode(text).tokens, lexicon, placed=placed) == code


@pytest.mark.parametrize("text", NOT_FOREIGN)
def test_english_and_what_is_no_language_is_left_alone(encoder: Encoder, lexicon: Lexicon, text: str) -> None:
    """Short texts, names and code are not guessed at."""
    assert foreign_language(text, encoder.encode(text).tokens, lexicon, placed=True) is None


def test_familiar_words_outweigh_the_identification(encoder: Encoder, lexicon: Lexicon) -> None:
    """To the identification alone this is Spanish."""
    text = "Can I get my actual card"
    tokens = encoder.encode(text).tokens

    assert foreign_language(text, tokens, lexicon, placed=False) == "es"
    assert foreign_language(text, tokens, lexicon, placed=True) is None


def test_a_text_of_any_length_is_identified_quietly(encoder: Encoder, lexicon: Lexicon, caplog: pytest.LogCaptureFixture) -> None:
    """By its beginning; line breaks do not matter, and nothing is logged."""
    text = "Warum sind die Verschreibungen gesunken?\n" * 3_000

    with caplog.at_level("INFO"):
        assert foreign_language(text, encoder.encode(text).tokens, lexicon, placed=False) == "de"

    assert not caplog.records
