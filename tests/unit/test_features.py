"""Lexical features: every gram has a key of its own, and a text is a unit vector of the grams that are known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.routing.features import Lexicon, grams

token = st.integers(0, 30_521)
tokens = st.lists(token, max_size=126)
corpora = st.lists(tokens, min_size=1, max_size=6)


def test_grams_are_all_words_and_all_pairs_of_neighbours() -> None:
    """Repeated ones included, in order."""
    assert grams([5, 7, 5]) == [5, 7, 5, (6 << 32) + 7, (8 << 32) + 5]
    assert (grams([]), grams([0])) == ([], [0])


@given(a=token, b=token, c=token, d=token)
def test_no_two_grams_share_a_key(a: int, b: int, c: int, d: int) -> None:
    """Neither two different pairs nor a pair and a word."""
    first, second = grams([a, b])[-1], grams([c, d])[-1]

    assert (first == second) is ((a, b) == (c, d))
    assert first not in {a, b, c, d}


@given(corpus=corpora, text=tokens)
def test_a_text_becomes_a_unit_vector_or_an_empty_one(corpus: list[list[int]], text: list[int]) -> None:
    """Columns are valid, ascending and unique; weights are positive; the norm is 1."""
    lexicon = Lexicon.fit(corpus, most=10**6)

    columns, weights = lexicon.weigh(text)

    assert columns.tolist() == sorted(set(columns.tolist()))
    assert all(0 <= c < len(lexicon.keys) for c in columns)
    assert (weights > 0.0).all()
    assert weights.dtype == np.float32
    assert np.linalg.norm(weights) == pytest.approx(1.0 if len(columns) else 0.0, abs=1e-5)
    assert {int(lexicon.keys[c]) for c in columns} == set(grams(text)) & set(lexicon.keys.tolist())


@given(corpus=corpora, text=tokens, strangers=st.lists(st.integers(40_000, 50_000), min_size=1, max_size=20))
def test_unknown_grams_change_nothing(corpus: list[list[int]], text: list[int], strangers: list[int]) -> None:
    """A text of strangers is empty, and strangers behind a text leave it as it is."""
    lexicon = Lexicon.fit(corpus, most=10**6)

    assert len(lexicon.weigh(strangers)[0]) == 0
    for with_them, without in zip(lexicon.weigh([*text, *strangers]), lexicon.weigh(text), strict=True):
        np.testing.assert_array_equal(with_them, without)


@given(corpus=corpora)
def test_every_text_of_the_corpus_is_known_wholly(corpus: list[list[int]]) -> None:
    """Each gram of each document has a column."""
    lexicon = Lexicon.fit(corpus, most=10**6)

    assert {int(k) for k in lexicon.keys} == {g for text in corpus for g in grams(text)}


def test_weights_follow_the_textbook() -> None:
    """Sublinear term frequency times smoothed inverse document frequency, L2-normalised (Manning et al. 2008)."""
    lexicon = Lexicon.fit([[1], [1], [2]], most=10**6)
    rare, common = math.log(4 / 2) + 1, math.log(4 / 3) + 1

    columns, weights = lexicon.weigh([1, 2, 2, 9, 2])

    raw = np.array([common, (1 + math.log(3)) * rare])
    assert lexicon.keys[columns].tolist() == [1, 2]
    assert weights == pytest.approx(raw / np.linalg.norm(raw), rel=1e-6)


@pytest.mark.parametrize("corpus", [[], [[]]], ids=["no document", "an empty document"])
def test_an_empty_lexicon_knows_nothing_and_does_not_break(corpus: list[list[int]]) -> None:
    """Weighing yields an empty vector."""
    columns, weights = Lexicon.fit(corpus, most=10**6).weigh([1, 2])

    assert (columns.tolist(), weights.tolist()) == ([], [])
