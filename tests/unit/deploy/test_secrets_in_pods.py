"""Who may read a Secret in a pod: kubelet gives it to root, and lets the pod's group read it."""

import os

import pytest

from gpuagent_common.connection import is_open_to_others

POD = 65532


@pytest.mark.parametrize(
    ("mode", "owner", "user", "is_open"),
    [
        (0o100440, 0, POD, False),
        (0o100400, 0, 0, False),
        (0o100600, POD, POD, False),
        (0o100440, 0, 0, True),
        (0o100440, POD, POD, True),
        (0o100460, 0, POD, True),
        (0o100444, 0, POD, True),
    ],
)
def test_only_a_pods_group_may_read_what_is_roots(
    monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, user: int, is_open: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert is_open_to_others(os.stat_result((mode, 0, 0, 0, owner, 0, 0, 0, 0, 0))) is is_open
