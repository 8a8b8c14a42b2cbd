"""The gazetteer finds what a text says, in one written form, and nothing that it does not say."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.loader import load_catalog
from service.catalog.model import Catalog, Pattern, Term
from service.catalog.spelling import spelling_key
from service.contracts.query import EntitySource, EntityType
from service.errors import ConfigurationError
from service.routing.entities import MAX_CHARACTERS, MAX_ENTITIES, Gazetteer
from service.routing.periods import written_period
from service.routing.typos import Speller, load_common_words

CATALOG = load_catalog()
GAZETTEER = Gazetteer(CATALOG)
NAMES = [spelling for term in CATALOG.terms for spelling in (term.value, *term.aliases)]

EXACT = {
    "value in any case": ("KISQALI and fabhalta", ["Kisqali", "Fabhalta"]),
    "alias": ("how is ribociclib doing", ["Kisqali"]),
    "possessive": ("Entresto's uptake", ["Entresto"]),
    "hyphen, underscore, blank": ("north-east or south_west or mid west", ["Northeast", "Southwest", "Midwest"]),
    "longest name wins": ("new prescriptions in the south east", ["NRx", "Southeast"]),
    "part of a word": ("southern westward reachable breach", []),
    "southeast is not south": ("Southeast", ["Southeast"]),
    "sentence border": ("go north. East is red", []),
    "ordinary words that are names": ("reach and conversion in the west", ["reach", "conversion_rate", "West"]),
    "each once, first place kept": ("TRx, NRx, trx, total scripts", ["TRx", "NRx"]),
    "ids": ("hcp 88213, PT_0042 and patient-77", ["HCP-88213", "PT-0042", "PATIENT-77"]),
    "an id is not a year": ("HCP 2024", ["HCP-2024"]),
    "quarters": ("q3, Q4 2026, q1-27, 2025-Q2", ["Q3", "Q4 2026", "Q1 2027", "Q2 2025"]),
    "a count after a quarter": ("in Q3 20 reps left", ["Q3"]),
    "spans": ("last 8 weeks and next two quarters", ["last 8 weeks", "next two quarters"]),
    "named periods": ("last quarter and year to date", ["last_quarter", "this_year"]),
    "months": ("March 2025, 2025-04, in May, June", ["2025-03", "2025-04", "May", "June"]),
    "ordinary may and march": ("we may march on", []),
    "years": ("2024 vs 2025", ["2024", "2025"]),
    "counts are no years": ("2025 HCPs, $2025, 2,025, 2025%, 2025.5, 20251", []),
    "what is left out": ("Fabhalta, not Kisqali, in every region except for the West, NRx instead of TRx", ["Fabhalta", "NRx"]),
    "nothing": ("", []),
    "another script": ("Кисқали ١٢٣ 全部", []),
    "full width": ("\uff2b\uff49\uff53\uff51\uff41\uff4c\uff49", ["Kisqali"]),
}
FUZZY = {
    "doubled letter": ("kisqalli", "Kisqali", 0.875),
    "swapped letters": ("Fabhlata", "Fabhalta", 0.875),
    "two slips in a long name": ("remibrutnb", "Remibrutinib", 0.8333),
    "slip in a phrase": ("last quater", "last_quarter", 0.9167),
    "slip in an ordinary long word": ("adherance", "adherence", 0.8889),
}
ORDINARY = (  # each is a letter or two from a name of the catalogue
    "mouth teach each peach react best rest test vest sooth youth reached reaches beach breach conversation converse inversion adherents "
    "persistent persistently consistency playback midwife northern entrusted quartet quarterly rhapsody volume regional subscriptions"
)


@pytest.mark.parametrize(("text", "values"), EXACT.values(), ids=EXACT)
def test_what_the_text_says_is_found_in_its_one_form(text: str, values: list[str]) -> None:
    """Names, ids and periods are found as whole words, longest first, in order, each once, with full confidence."""
    found = GAZETTEER.extract(text)

    assert [entity.value for entity in found] == values
    assert all(entity.confidence == 1.0 and entity.source is EntitySource.EXACT for entity in found)


@pytest.mark.parametrize(("text", "value", "confidence"), FUZZY.values(), ids=FUZZY)
def test_a_misspelt_name_is_found_with_its_similarity(text: str, value: str, confidence: float) -> None:
    """A slip in a long enough word is forgiven, and the confidence says how far the spelling is off."""
    (entity,) = GAZETTEER.extract(f"show {text} now")

    assert (entity.value, entity.confidence, entity.source) == (value, confidence, EntitySource.FUZZY)


@pytest.mark.parametrize("word", ORDINARY.split())
def test_an_ordinary_word_is_never_a_misspelling(word: str) -> None:
    """English words near a name are left alone, also inside a phrase."""
    assert GAZETTEER.extract(word) == ()
    assert GAZETTEER.extract(f"last {word}, the {word} and email {word}") == ()


@pytest.mark.parametrize("name", NAMES)
def test_every_spelling_of_the_catalogue_leads_to_its_value(name: str) -> None:
    """Each value and alias is found by itself, in any case."""
    (entity,) = GAZETTEER.extract(f"({name.upper()})")

    owner = next(term for term in CATALOG.terms if name in (term.value, *term.aliases))
    assert (entity.type, entity.value, entity.confidence) == (owner.type, owner.value, 1.0)


def test_a_sure_mention_outweighs_a_misspelt_one() -> None:
    """When a name is misspelt once and right once, it is one entity with full confidence."""
    (entity,) = GAZETTEER.extract("Kisqalli, I mean Kisqali")

    assert (entity.confidence, entity.source) == (1.0, EntitySource.EXACT)


def test_at_most_twenty_entities_are_returned() -> None:
    """The contract's limit on entities holds here already, by order of mention."""
    found = GAZETTEER.extract(" ".join(f"HCP-{number}" for number in range(100, 200)))

    assert [entity.value for entity in found] == [f"HCP-{number}" for number in range(100, 100 + MAX_ENTITIES)]


def test_a_word_at_the_cut_is_not_read_in_half() -> None:
    """Only the first 8,000 characters are read, and `Southeast` across the border is not `South`."""
    text = " " * (MAX_CHARACTERS - 5) + "Southeast Kisqali"

    assert GAZETTEER.extract(text) == ()


LONG = {
    "one word": "a" * 100_000,
    "blanks": " " * 100_000,
    "a name": "kisqali " * 12_500,
    "a misspelling": "kisqalli, last quater " * 4_600,
    "half an id": "HCP-" * 25_000,
    "half a span": "last 999 " * 11_000,
    "quarters": "q4 " * 33_000,
    "digits": "2" * 100_000,
    "different words": " ".join(f"kis{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676 % 26)}li" for i in range(12_500)),
    "combining marks": "a\u0301" * 50_000,
    "emoji": "😀" * 100_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_hundred_thousand_characters_take_no_time(text: str) -> None:
    """Whatever a long text repeats, extraction ends within 50 ms (the best of three, since the machine may be busy)."""
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        GAZETTEER.extract(text)
        seconds.append(time.perf_counter() - begun)

    assert min(seconds) < 0.05


PIECES = st.one_of(
    st.sampled_from([*NAMES, "Q3 2026", "hcp 42", "last 8 weeks", "May 2024", "kisqalli", "-", "_", ". "]), st.text(max_size=12)
)


@given(st.lists(PIECES, max_size=30).flatmap(lambda parts: st.sampled_from([" ".join(parts), "".join(parts)])))
def test_everything_found_stands_in_the_text(text: str) -> None:
    """Extraction never raises, nothing overlaps, and each exact name is spelt in the text where the mention says."""
    spellings = {term.value: {spelling_key(spelling) for spelling in (term.value, *term.aliases)} for term in CATALOG.terms}

    mentions = GAZETTEER.mentions(text)

    assert all(before.stop <= after.start for before, after in pairwise(mentions))
    for mention in mentions:
        said, entity = text[mention.start : mention.stop], mention.entity
        assert said
        assert 0.8 <= entity.confidence <= 1.0
        if entity.source is EntitySource.EXACT and entity.value in spellings:
            assert spelling_key(said) in spellings[entity.value]
    assert {entity.value for entity in GAZETTEER.extract(text)} <= {mention.entity.value for mention in mentions}


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    """Extraction never raises and gives the same answer twice."""
    assert GAZETTEER.extract(text) == GAZETTEER.extract(text)


@given(st.text(max_size=40))
def test_a_written_period_stays_as_it_is(text: str) -> None:
    """Writing a period twice changes nothing more."""
    once = written_period(text)

    assert written_period(once).casefold() == once.casefold()


def test_a_word_that_could_mean_two_names_is_left_alone() -> None:
    """Between two equally near names nothing is guessed."""
    speller = Speller(["kisqala", "kisqalo"], frozenset())

    assert speller.correct("kisqali") is None
    assert speller.correct("kisqaala") == "kisqala"


def test_another_companys_names_and_ids_work_without_code() -> None:
    """Terms with signs inside, other scripts and other ids come from the catalogue alone."""
    catalog = Catalog(
        intents=(),
        agents=(),
        terms=(Term(type=EntityType.BRAND, value="R&D One", aliases=("Café Zürich",)),),
        fallback_intent="a",
        default_agent="b",
        template_text="c",
        hash="d",
        patterns=(Pattern(type=EntityType.HCP_ID, expression=r"\bDR [A-Z]{2} [0-9]{3}\b"),),
    )

    found = Gazetteer(catalog, common_words=()).extract("r&d-one, CAFE\u0301 ZU\u0308RICH, R D one, dr ab 123")

    assert [entity.value for entity in found] == ["R&D One", "DR-AB-123"]


def test_a_missing_vocabulary_is_said_plainly(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without the list of ordinary words the service does not start."""
    with pytest.raises(ConfigurationError, match="reinstall"):
        load_common_words(tmp_path_factory.mktemp("empty") / "tokenizer.json")
