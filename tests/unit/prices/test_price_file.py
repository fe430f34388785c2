"""Price files: what is taken, and what is said of those that are broken."""

import json
from pathlib import Path

import fastjsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.prices.price import SCHEMA, Price, find_prices
from gpuagent_common.errors import MisuseError

ROOT = Path(__file__).resolve().parents[3]

FULL = """
- platform: gke
  device: NVIDIA L4
  instance_type: g2-standard-4
  currency: EUR
  instance_hour: 0.75
  provisioning_included: true
  kilowatt_hour: 0.25
  pue: 1.1
- platform: gke
  currency: EUR
  instance_hour: 3
"""


X = "- platform: x\n  currency: USD"


def parse(text: str) -> tuple[Price, ...]:
    return tuple(parse_prices(text.encode(), "p.yaml").entries)


def test_every_key_is_read_and_missing_ones_are_absent() -> None:
    absent = {"device": None, "instance_type": None, "provisioning_included": False, "kilowatt_hour": None, "pue": None}
    full = yaml.safe_load(FULL)[0]
    assert parse(FULL) == (
        Price(line=2, **full),
        Price(line=10, platform="gke", currency="EUR", instance_hour=3.0, **absent),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", ["no", "2024", "1.10", "null", "0x10", "'quoted'", "a: b".replace(": ", ":")])
def test_a_name_is_a_text_whatever_else_yaml_takes_it_for(name: str) -> None:
    (price,) = parse(f"- {{platform: {name}, currency: USD, instance_hour: 1}}")
    assert price.platform == name.strip("'")


BROKEN = (
    ("", "line 1: prices are a list, such as `- {platform: NAME, currency: USD, instance_hour: 1.5}`"),
    ("platform: x", "line 1: prices are a list, "),
    ("- just text", "line 1: an entry has lines `key: value`"),
    (X + "\n  price: 3", "line 3: unknown key price; platform, currency"),
    ("- platform: x\n  [1]: 3", "line 2: unknown key this; platform"),
    (X + "\n  currency: USD\n  instance_hour: 1", "line 3: currency is here twice"),
    ("- currency: USD\n  instance_hour: 1", "line 1: platform is missing"),
    ("- platform: x\n  instance_hour: 1", "line 1: currency is missing"),
    (X, "line 1: there is no price: give instance_hour, kilowatt_hour or both"),
    ("- platform:\n  currency: USD", "line 1: platform must be a text"),
    ("- platform: x\n  currency: usd\n  instance_hour: 1", "line 2: currency must be three capital letters"),
    (X + "\n  instance_hour: cheap", "line 3: instance_hour must be a number such as"),
    (X + "\n  instance_hour: .nan", "line 3: instance_hour must be a number such as"),
    (X + "\n  instance_hour: -1", "line 3: instance_hour must be a number such as"),
    (X + "\n  instance_hour: [1]", "line 3: instance_hour must be a text"),
    (X + "\n  instance_hour: 0", "line 3: instance_hour 0 is not above 0; leave out"),
    (X + "\n  kilowatt_hour: 1", "line 3: kilowatt_hour needs pue"),
    (X + "\n  instance_hour: 1\n  pue: 1", "line 4: pue needs kilowatt_hour"),
    (X + "\n  kilowatt_hour: 1\n  pue: 0.9", "line 4: pue 0.9 is not at least 1"),
    (
        X + "\n  instance_hour: 1\n  provisioning_included: yes",
        "line 4: provisioning_included must be true or false, not yes",
    ),
    (
        X + "\n  kilowatt_hour: 1\n  pue: 1\n  provisioning_included: true",
        "line 5: provisioning_included needs instance_hour",
    ),
    (
        "- {platform: x, currency: USD, instance_hour: 1}\n"
        "- {platform: x, device: L4, currency: USD, instance_hour: 2}",
        "line 2: this entry is never used: the one in line 1 already covers it",
    ),
    ("- platform: x\n  currency: 'USD", "line 2: found unexpected end of stream"),
    ("- a\n- b: c: d", "line 2: mapping values are not allowed here"),
    ("- &a x\n- *b", "line 2: found undefined alias 'b'"),
    ("a\x07b", "special characters are not allowed"),
    ("[" * 1000, "is nested too deeply"),
)


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_errors_are_reported_with_their_line(text: str, message: str) -> None:
    with pytest.raises(MisuseError) as refused:
        parse(text)
    said = str(refused.value)
    assert said.startswith("p.yaml")
    assert message in said
    assert "\n" not in said


def test_the_schema_for_editors_refuses_what_is_refused() -> None:
    check = fastjsonschema.compile(json.loads(SCHEMA.read_text()))
    check(yaml.safe_load(FULL))
    # Those of YAML's syntax, its types, and of entries together are none of a schema's.
    own = ("missing", "unknown key price", "no price", "capital", " needs ", "not above", "not at least")
    refused = [text for text, message in BROKEN if any(words in message for words in own)]
    assert len(refused) == 10
    for text in refused:
        with pytest.raises(fastjsonschema.JsonSchemaException):
            check(yaml.safe_load(text))


def test_binary_and_far_too_long_files_are_rejected() -> None:
    with pytest.raises(MisuseError, match="not UTF-8"):
        parse_prices(b"\xff\xfe\x00", "p.yaml")
    with pytest.raises(MisuseError, match="has 1,000,001 bytes"):
        parse_prices(b"#" * 1_000_001, "p.yaml")


NAMES = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x24F, blacklist_categories=("Cc", "Cf", "Zs")), min_size=1
)
AMOUNTS = st.decimals("0.0001", "99999", places=4)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"platform": NAMES, "currency": st.from_regex(r"[A-Z]{3}", fullmatch=True), "instance_hour": AMOUNTS},
            optional={"device": NAMES, "instance_type": NAMES, "provisioning_included": st.booleans()},
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda entry: entry["platform"],
    )
)
def test_what_was_written_is_what_is_read(entries: list[dict[str, object]]) -> None:
    plain = [{**entry, "instance_hour": float(str(entry["instance_hour"]))} for entry in entries]
    read = parse(yaml.safe_dump(plain, allow_unicode=True))
    assert [{key: getattr(price, key) for key in entry} for price, entry in zip(read, plain, strict=True)] == plain


def test_the_first_entry_that_fits_a_node_counts() -> None:
    prices = parse_prices(FULL.encode(), "p.yaml")
    special, general = prices.entries
    assert prices.of_node("gke", ["NVIDIA L4", "NVIDIA L4"], "g2-standard-4") is special
    assert prices.of_node("gke", ["NVIDIA L4"], None) is general
    assert prices.of_node("gke", ["NVIDIA L4", "NVIDIA T4"], "g2-standard-4") is general
    assert prices.of_node("gke", [], "g2-standard-4") is general
    assert prices.of_node("satori", [], None) is None


def test_a_named_file_must_be_there_and_the_default_need_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_prices(None) is None
    with pytest.raises(MisuseError, match=r"missing.yaml: No such"):
        find_prices(tmp_path / "missing.yaml")
    (tmp_path / "gpuagent").mkdir()
    (tmp_path / "gpuagent" / "prices.yaml").write_text(FULL)
    found = find_prices(None)
    assert found
    assert len(found.entries) == 2


def test_the_example_holds_the_two_figures_that_have_a_source_and_no_other() -> None:
    (price,) = parse((ROOT / "docs" / "prices.example.yaml").read_text())
    assert (price.kilowatt_hour, price.pue, price.instance_hour) == (0.0839, 1.2, None)
