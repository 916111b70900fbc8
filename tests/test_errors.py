from __future__ import annotations

import pickle

import pytest

from msprobe_nb import errors


def test_messages_name_file_key_and_remedy():
    error = errors.FormatError("it is broken", file="a/dump.json", key="data", remedy="Fix it")
    assert str(error) == "it is broken (file a/dump.json, key 'data'). Fix it."


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.PathNotFoundError, FileNotFoundError),
        (errors.TensorReadError, OSError),
        (errors.UnknownTensorError, KeyError),
        (errors.FormatError, ValueError),
        (errors.CompareError, ValueError),
    ],
)
def test_errors_are_also_the_builtin_a_caller_expects(kind, builtin):
    error = kind("what", file="f", key="k", remedy="r")
    assert isinstance(error, errors.MsProbeError)
    assert isinstance(error, builtin)
    assert str(error) == "what (file f, key 'k'). r."


def test_errors_survive_pickling():
    error = errors.TensorReadError("what", file="f", key="k", remedy="r")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
