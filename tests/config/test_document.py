"""A project file is read within bounds: whatever its bytes are, the outcome is a project or an error with words, soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headgate.config import load_project
from headgate.config.document import read_value
from headgate.errors import ConfigError, MultipleProblems

GOOD = """name: shop
storage: ./warehouse
freshness: {max_staleness: 10m, deadline: 5s}
sources:
  shop: &shop {type: memory, tables: {items: {columns: {id: int, name: string}, key: [id]}}}
  other: {<<: *shop}
"""


def powers(first: str, following: str) -> str:
    """Eleven lines, each of which stands for nine times as many values as the one before."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{i}: &a{i} " + following.format(", ".join([f"*a{i - 1}"] * 9)) for i in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        (powers("[x]", "[{}]"), "more than 100,000 values"),
        (powers("{k: v}", "{{<<: [{}]}}"), "more than 100,000 values"),
        (GOOD + "spark: " + "[" * 100_000, "headgate.yml:7: .*more than 32 levels"),
        (GOOD + "spark: " + "{a: " * 1_000, "headgate.yml:7: .*more than 32 levels"),
        (
            GOOD + "spark:\n" + "".join(" " * i + "a:\n" for i in range(1, 400)),
            "headgate.yml:39: .*more than 32 levels",
        ),
        (GOOD + "# " + "x" * (1 << 18), "longer than 262,144 characters"),
        (GOOD + "spark: {a: \0}", "headgate.yml:7: .*a NUL"),
        (GOOD + 'spark: {a: "\\ud800"}', "headgate.yml:7: .*U\\+D800"),
        (GOOD + 'spark: {"\\udc00": a}', "headgate.yml:7: .*U\\+DC00"),
        (GOOD + "spark: {a: !!bool maybe}", "does not fit its type"),
        (GOOD + "spark: {a: !!timestamp x}", "does not fit its type"),
        (GOOD + "spark: {a: " + "1" * 5_000 + "}", "does not fit its type: .*4300 digits"),
        (GOOD + "limits: {overlay_bytes: " + "1" * 4_000 + "KiB}", "is not a size"),
        (GOOD + "!!str [a]: 1", "not a text key"),
        (GOOD.replace("./warehouse", "~nobody-of-that-name/warehouse"), "headgate.yml:2: .*no home"),
        (GOOD + "# \x1f", "not valid YAML: .*x001f"),
        (GOOD.replace("id: int", "id: '" + "array<" * 60 + "int" + ">" * 60 + "'"), "more than 50 parts"),
    ],
)
def test_what_goes_beyond_the_bounds_is_refused_at_once(tmp_path: Path, text: str, telling: str) -> None:
    (tmp_path / "headgate.yml").write_text(text)
    began = time.monotonic()
    with pytest.raises((ConfigError, MultipleProblems), match=telling):
        load_project(tmp_path)
    # Generous: without the bounds it does not end at all.
    assert time.monotonic() - began < 60


def test_aliases_and_merges_within_the_bounds_are_read(tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text(GOOD)
    assert set(load_project(tmp_path).sources) == {"shop", "other"}


def test_a_variable_that_is_no_text_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headgate.yml").write_text(GOOD + "spark: {a: '${ODD}'}")
    monkeypatch.setenv("ODD", "\udcff")
    with pytest.raises(ConfigError, match=r"headgate.yml:7: .*U\+DCFF"):
        load_project(tmp_path)


def test_a_dict_that_contains_itself_is_refused() -> None:
    project: dict[str, object] = {"name": "shop", "storage": "/tmp/shop"}
    project["spark"] = project
    with pytest.raises(ConfigError, match="more than 32 levels"):
        load_project(project)


def test_a_single_value_has_the_same_bounds() -> None:
    assert read_value("{w: 0.5}", "pace") == {"w": 0.5}
    for text in ("[" * 5_000, "&a [*a]", "\ud800", "1" * 5_000, "!!bool x", "}"):
        with pytest.raises(ConfigError):
            read_value(text, "pace")


pieces = st.sampled_from(
    [
        *[
            "&a ",
            "*a",
            "<<: ",
            "{",
            "}",
            "[",
            "]",
            ": ",
            "- ",
            "? ",
            "!!str ",
            "!!int ",
            "!!binary ",
            "!!set ",
            "!x ",
            "|\n",
            ">\n",
            "'",
            '"',
            "\t",
            "\n",
            "\n  ",
            "---\n",
            "...\n",
            "%YAML 1.1\n",
            "\x00",
            "#",
        ],
        *[
            '"\\ud800"',
            "1:1:1",
            "0x_",
            "2024-99-99",
            ".inf",
            "name",
            "storage: x\n",
            "~",
            "${HOME",
            "${A:-b}",
            "$${",
            "\u2028",
            "\x85",
            "😀",
        ],
        "9" * 4_400,
    ]
)


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.one_of(st.binary(max_size=100), st.text(max_size=100), st.lists(pieces, max_size=30).map("".join)), st.data())
@example(b"\xff\xfe", None)
def test_any_bytes_are_a_project_or_an_error_with_words(
    tmp_path: Path, content: bytes | str, data: st.DataObject | None
) -> None:
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    if data is not None:
        place = data.draw(st.integers(0, len(GOOD)))
        raw = data.draw(st.sampled_from([raw, GOOD[:place].encode() + raw + GOOD[place:].encode()]))
    (tmp_path / "headgate.yml").write_bytes(raw)
    try:
        load_project(tmp_path)
    except (ConfigError, MultipleProblems) as error:
        str(error).encode()
