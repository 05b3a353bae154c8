"""Errors show neither logins nor signatures of addresses."""

from __future__ import annotations

import pickle

import pytest

from traceanalyzer.model.errors import UnreadableTrace, without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://alice:s3cr3t@host/t.json.gz?X-Amz-Signature=TOP", "http://host/t.json.gz"),
        ("s3://bucket/key.json", "s3://bucket/key.json"),
        ("see 'https://host/a?token=1#b': 404", "see 'https://host/a': 404"),
        ("a@b.json?x=1", "a@b.json?x=1"),
    ],
)
def test_addresses_are_shown_without_credentials(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_an_error_has_no_credentials_in_any_part() -> None:
    address = "http://alice:s3cr3t@host/t.json?sig=TOP"
    error = UnreadableTrace(f"{address} is gone", where=address, remedy=f"Try {address}")
    for text in (str(error), str(pickle.loads(pickle.dumps(error)))):
        assert "s3cr3t" not in text
        assert "TOP" not in text
