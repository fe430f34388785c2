"""Names of kernels as a screen has room for them; the long ones are what an H200 was recorded to run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.answers.profile_data import LONGEST_NAME, short_names
from gpuagent_common.text import is_dangerous
from tests.integration.profile.traced import recorded


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::mm", "aten::mm"),
        ("void gemm<float, 4>(float const*, int)", "gemm<…>"),
        ("void at::native::(anonymous namespace)::max_pool<float>(int)", "max_pool<…>"),
        ("std::enable_if<!(false), void>::type dot_kernel<float, 128>(a<b>)", "enable_if<…>::type dot_kernel<…>"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("triton_poi_fused_relu_0", "triton_poi_fused_relu_0"),
        ("a > b)", "a > b)"),
    ],
)
def test_template_arguments_and_parameters_are_cut(name: str, short: str) -> None:
    assert short_names([name]) == {name: short}


def test_template_arguments_that_distinguish_kernels_are_kept() -> None:
    names = ["void k<1, f<x> >(int)", "void k<2, f<x> >(int)", "void l<f<x> >(int)", "void l<f<y> >(int)", "m<1>()"]
    assert list(short_names(names).values()) == ["k<1, f<…> >", "k<2, f<…> >", "l<f<x> >", "l<f<y> >", "m<…>"]


def test_names_that_stay_alike_are_numbered() -> None:
    assert list(short_names(["f(int)", "f(float)", "f #1"]).values()) == ["f #2", "f #3", "f #1"]


def test_recorded_kernels_stay_apart_and_short() -> None:
    names = [str(operation["name"]) for operation in recorded()]
    short = short_names(names)
    assert max(map(len, names)) > 500
    assert len(set(short.values())) == len(set(names))
    assert max(map(len, short.values())) <= LONGEST_NAME + len(" #1")
    assert "implicit_convolve_sgemm<…>" in short.values()


@given(st.lists(st.text(alphabet=st.one_of(st.sampled_from("<>(){}[]-: \x1b\x9b\u202e"), st.characters()))))
def test_any_names_become_harmless_short_and_different(names: list[str]) -> None:
    short = short_names(names)
    assert len(set(short.values())) == len(set(names))
    assert all(len(name) <= LONGEST_NAME + len(" #999") for name in short.values())
    assert not any(is_dangerous(character) for name in short.values() for character in name)
