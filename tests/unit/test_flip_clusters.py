"""Texts are grouped by what their vectors say, whatever their number."""

import numpy as np
import pytest

from optimizers.flip_clusters import LEAST_TEXTS, MOST_LINKED, REST, WORTH_GROUPING, centre, group, nearest

WIDTH = 64


def around(axis: int, count: int, *, spread: float = 0.05) -> np.ndarray:
    """Return unit vectors near an axis."""
    vectors = np.eye(WIDTH, dtype=np.float32)[axis] + np.random.default_rng(axis).normal(0, spread, (count, WIDTH)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_what_means_the_same_is_one_group_and_the_largest_comes_first() -> None:
    """Twelve, thirty, and three strays that are no group."""
    strays = np.concatenate([around(axis, 1) for axis in (7, 8, 9)])

    groups = group(np.concatenate([around(1, 12), around(2, 30), strays]))

    assert groups.tolist() == [1] * 12 + [0] * 30 + [REST] * 3


def test_a_few_texts_are_not_parted() -> None:
    """Two meanings in too few texts to be worth two entries."""
    few = np.concatenate([around(1, WORTH_GROUPING // 2), around(2, WORTH_GROUPING // 2 - 1)])

    assert set(group(few).tolist()) == {0}


def test_strays_alone_are_the_rest() -> None:
    """Every text speaks of something else."""
    assert set(group(np.eye(WIDTH, dtype=np.float32)).tolist()) == {REST}


def test_many_texts_join_the_groups_of_some_of_them() -> None:
    """More than can be linked at once: each lands where it belongs, and one that belongs nowhere does not."""
    size = MOST_LINKED
    many = np.concatenate([around(1, size, spread=0.02), around(2, size // 2, spread=0.02), around(9, LEAST_TEXTS - 1)])

    groups = group(many)

    assert groups[:size].tolist() == [0] * size
    assert groups[size : size + size // 2].tolist() == [1] * (size // 2)
    assert set(groups[size + size // 2 :].tolist()) == {REST}


def test_the_most_typical_text_comes_first() -> None:
    """By its likeness to the middle, which is a unit vector."""
    three = np.array([[0.0, 1.0], [1.0, 0.0], [np.sqrt(0.5), np.sqrt(0.5)]], np.float32)

    assert nearest(three)[0] == 2
    assert np.linalg.norm(centre(three)) == pytest.approx(1.0)
