import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.runs.redaction import redact_arguments, redact_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--token=abc123", "--token=[hidden]"),
        ("WANDB_API_KEY=0123456789", "WANDB_API_KEY=[hidden]"),
        ('password: "two words"', "password: [hidden]"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: [hidden]"),
        ("pushed to https://me:secret@host/x", "pushed to https://[hidden]@host/x"),
        ("key AKIAABCDEFGHIJKLMNOP used", "key [hidden] used"),
        ("--learning-rate=0.1 --tokens-per-batch 5", "--learning-rate=0.1 --tokens-per-batch 5"),
        ("loss 0.25 at step 3", "loss 0.25 at step 3"),
    ],
)
def test_secrets_are_hidden_and_other_text_is_not(text: str, expected: str) -> None:
    assert redact_text(text) == expected


def test_the_argument_after_a_secret_option_is_hidden() -> None:
    redacted = redact_arguments(["train", "--password", "hunter2", "--lr", "1"])
    assert redacted == ["train", "--password", "[hidden]", "--lr", "1"]


@given(
    st.text(st.characters(categories=["L", "N"]), min_size=1), st.sampled_from(["API_TOKEN", "secret", "my.password"])
)
def test_no_value_of_a_telling_name_survives(value: str, name: str) -> None:
    assert redact_text(f"before {name}={value} after") == f"before {name}=[hidden] after"


@pytest.mark.parametrize("piece", ["-", "token-", "a.", "token=", "secret_", "\t", "a:", "token"])
def test_hostile_text_is_redacted_fast(piece: str) -> None:
    assert isinstance(redact_text(piece * (200_000 // len(piece))), str)
