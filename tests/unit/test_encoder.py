"""The encoder turns any text into a unit vector in bounded time, alike alone and among many, and refuses a model that is not the one."""

import shutil
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime import InferenceSession

from service.errors import ConfigurationError
from service.routing import encoder as module
from service.routing import encoder_file
from service.routing.encoder import MAX_TOKENS, SHORT_TOKENS, Encoder

TEXTS = {
    "a question": "Did the rep visits lift Kisqali TRx?",
    "empty": "",
    "blanks": " \n\t ",
    "emoji": "🙂🚀 👩‍👩‍👧",
    "German": "Hat der Außendienst den Umsatz gesteigert?",
    "Chinese": "销售代表的拜访提高了处方量吗？",
    "Arabic": "هل زادت الزيارات الوصفات؟",
    "control characters": "a\x00b\x1b[31mc\ufffe",
    "combining marks": "Z̸̢̛a̵l̶g̴o̷",
    "one long word": "x" * 100_000,
    "many words": "visit " * 20_000,
    "long emoji": "🙂" * 100_000,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_text_has_a_unit_vector_in_bounded_time(encoder: Encoder, text: str) -> None:
    """Whatever the script and length; what lies beyond the model's window is cut off before it costs anything."""
    started = time.perf_counter()

    encoding = encoder.encode(text)

    assert time.perf_counter() - started < 10.0
    assert np.linalg.norm(encoding.vector) == pytest.approx(1.0, abs=1e-5)
    assert (encoding.vector.shape, encoding.vector.dtype) == ((768,), np.float32)
    assert len(encoding.tokens) <= MAX_TOKENS - 2


def test_many_texts_are_encoded_as_each_text_alone_is(encoder: Encoder) -> None:
    """In the order given, and to the last bit: what is fitted on many texts reads one as it was."""
    texts = [*(text[:200] for text in TEXTS.values()), *(f"question number {i} " * (i % 5) for i in range(30))]

    together = encoder.encode_many(texts)

    for text, encoding in zip(texts, together, strict=True):
        alone = encoder.encode(text)
        assert encoding.tokens == alone.tokens
        np.testing.assert_array_equal(encoding.vector, alone.vector)


def test_full_width_letters_are_read_as_plain_ones(encoder: Encoder) -> None:
    """And ligatures: a text that looks the same means the same."""
    assert encoder.encode("\uff34\uff32\uff58 forecast of\ufb01ce").tokens == encoder.encode("TRx forecast office").tokens


def test_of_a_longer_text_beginning_and_end_are_read(encoder: Encoder) -> None:
    """An earlier utterance often ends in what it asks."""
    text = f"hello {'and ' * 60}forecast"
    short = encoder.encode_many([text], most=8)[0].tokens

    assert (short[0], short[-1]) == (encoder.encode("hello").tokens[0], encoder.encode("forecast").tokens[0])
    assert len(short) == 6


def test_a_part_is_read_in_its_context(encoder: Encoder) -> None:
    """Its own tokens' states are pooled, so it is near to what it says alone and tinged by the rest; the whole is its own part."""
    text = encoder.encode("Play some jazz and then forecast TRx for the Northeast")
    part = text.part(encoder.tokens_of("forecast TRx for the Northeast"))
    alone, other = encoder.encode("forecast TRx for the Northeast"), encoder.encode("Play some jazz")

    assert part is not None
    assert (part.tokens, part.vector.shape) == (alone.tokens, alone.vector.shape)
    assert np.linalg.norm(part.vector) == pytest.approx(1.0, abs=1e-5)
    assert 0.99 > part.vector @ alone.vector > part.vector @ other.vector + 0.2


@pytest.mark.parametrize("part", ["forecast jazz", "jazz forecast", "", "Play some jazz and then forecast TRx too"])
def test_what_is_no_run_of_the_text_is_no_part_of_it(encoder: Encoder, part: str) -> None:
    """Nor is anything a part of one of many texts, whose states are not kept."""
    text = encoder.encode("Play some jazz and then forecast TRx")

    assert text.part(encoder.tokens_of(part)) is None
    assert encoder.encode_many(["Play some jazz"])[0].part(encoder.tokens_of("jazz")) is None


def test_no_texts_give_no_encodings(encoder: Encoder) -> None:
    """Nothing in, nothing out."""
    assert encoder.encode_many([]) == []


def test_the_same_text_has_the_same_vector(encoder: Encoder) -> None:
    """Decisions can be made again."""
    first, second = (encoder.encode("Where is the gap?") for _ in range(2))

    np.testing.assert_array_equal(first.vector, second.vector)


def test_what_means_the_same_is_nearer_than_what_does_not(encoder: Encoder) -> None:
    """The vectors carry meaning, not spelling."""
    question, same, other = (
        encoder.encode(t).vector
        for t in ("Release the new version of the model", "put the model update into production", "Who won the football match?")
    )

    assert question @ same > question @ other + 0.1


@settings(max_examples=40)
@given(text=st.text(max_size=100))
def test_any_unicode_text_can_be_encoded(encoder: Encoder, text: str) -> None:
    """No text breaks the tokenizer or yields a vector that is not finite."""
    assert np.isfinite(encoder.encode(text).vector).all()


def test_a_lone_surrogate_is_an_error_of_its_own_kind(encoder: Encoder) -> None:
    """The API refuses such a body; whoever passes one on learns of it."""
    with pytest.raises(TypeError, match="must be str"):
        encoder.encode("\ud800")


def test_a_folder_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    """And how to get it."""
    with pytest.raises(ConfigurationError, match=r"lacks .*model\.onnx"):
        Encoder(tmp_path)


def test_another_folder_is_read_and_has_a_name_of_its_own_content(tmp_path: Path, encoder: Encoder) -> None:
    """A student fitted on one encoder is not served on another: the name is the model's hash."""
    shutil.copy(module.TOKENIZER_FILE, tmp_path / "tokenizer.json")
    (tmp_path / "model.onnx").write_bytes(encoder_file.served_model())

    copied = Encoder(tmp_path)

    assert copied.name != encoder.name == encoder_file.NAME
    np.testing.assert_allclose(copied.encode("hello").vector, encoder.encode("hello").vector, atol=1e-5)


def test_the_packaged_model_is_read_nearly_as_it_is(tmp_path: Path, encoder: Encoder) -> None:
    """Its last layer is the first half of the vectors, but for what 8 bits round."""
    shutil.copy(module.TOKENIZER_FILE, tmp_path / "tokenizer.json")
    (tmp_path / "model.onnx").write_bytes(encoder_file.packaged_model())

    plain = Encoder(tmp_path)

    assert plain.name == encoder_file.MODEL_SHA256[:16]
    last, middle = np.split(encoder.encode("Did the rep visits lift Kisqali TRx?").vector, 2)
    assert float(plain.encode("Did the rep visits lift Kisqali TRx?").vector @ last) * np.sqrt(2) > 0.99
    assert [float(np.linalg.norm(half)) for half in (last, middle)] == pytest.approx([0.5**0.5] * 2, abs=1e-5)


def test_the_graph_that_is_served_computes_what_the_package_computes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before anything is rounded to 8 bits, for a text of one token and for a long one."""
    monkeypatch.setattr(encoder_file, "quantize", lambda model, _: model.SerializeToString())
    whole = onnx.load_from_string(encoder_file.packaged_model())
    whole.graph.output.append(onnx.helper.make_empty_tensor_value_info("layer_norm_8"))  # two norms a layer, counted from the words' own
    served, packaged = InferenceSession(encoder_file.served_model(tmp_path)), InferenceSession(whole.SerializeToString())

    for length in (3, 22, MAX_TOKENS):
        ids = np.random.default_rng(length).integers(1_000, 20_000, (1, length))
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        last, fourth = served.run(None, {"input_ids": ids})
        expected = packaged.run(["last_hidden_state", "layer_norm_8"], feed)
        np.testing.assert_allclose(last, expected[0], atol=2e-5)
        np.testing.assert_allclose(fourth, expected[1], atol=2e-5)


def test_the_served_model_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it comes from the cache; a cache that cannot be written is no obstacle."""
    made: list[bytes] = []
    monkeypatch.setattr(encoder_file, "quantize", lambda model, tokenizer: made.append(model) or b"made")
    (tmp_path / "file").write_bytes(b"")

    first, second = (encoder_file.served_model(tmp_path / "cache") for _ in range(2))
    unkept = encoder_file.served_model(tmp_path / "file")

    assert (first, second, unkept) == (b"made", b"made", b"made")
    assert len(made) == 2
    kept = f"{encoder_file.NAME}-{encoder_file.GRAPH}"
    assert {p.name for p in (tmp_path / "cache").iterdir()} == {f"{kept}.onnx", f"{kept}.sha256"}


def test_a_damaged_cache_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """As after a disk that was full, or a bit that flipped: the service starts as ever, a little later."""
    monkeypatch.setattr(encoder_file, "quantize", lambda model, tokenizer: b"made")
    encoder_file.served_model(tmp_path)
    (kept,) = tmp_path.glob("*.onnx")
    kept.write_bytes(b"mad")

    found, caplog_then = encoder_file.served_model(tmp_path), list(caplog.messages)
    again = encoder_file.served_model(tmp_path)

    assert (found, again, kept.read_bytes()) == (b"made", b"made", b"made")
    assert caplog_then == caplog.messages == ["encoder_made_anew"]


@pytest.mark.parametrize(("name", "value"), [("MODEL_SHA256", "0" * 64), ("MODEL_PACKAGE", "no_such_package")])
def test_a_packaged_model_that_is_not_the_expected_one_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """The message says how to repair the installation."""
    monkeypatch.setattr(encoder_file, name, value)

    with pytest.raises(ConfigurationError, match="make install"):
        encoder_file.packaged_model()


def test_earlier_utterances_are_read_up_to_their_beginning_and_remembered(encoder: Encoder) -> None:
    """The same text gives the same encoding again, a long one is cut, and equal ones count once."""
    long = "is the pipeline up and is it well " * 200

    first, again = encoder.encode_short(["is it up", long, "is it up"]), encoder.encode_short([long, "is it up"])

    assert first.keys() == {"is it up", long}
    assert all(again[text] is first[text] for text in first)
    assert len(first[long].tokens) == SHORT_TOKENS - 2
    np.testing.assert_array_equal(first["is it up"].vector, encoder.encode("is it up").vector)


def test_what_is_remembered_is_bounded(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first, and more texts at once than are kept all come back."""
    monkeypatch.setattr("service.routing.encoder.REMEMBERED", 2)

    found = encoder.encode_short(["one", "two", "three"])

    assert found.keys() == {"one", "two", "three"}
    assert encoder.encode_short(["three"])["three"] is found["three"]
    assert encoder.encode_short(["one"])["one"] is not found["one"]
