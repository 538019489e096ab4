"""Answers in a notebook: as an HTML table with what the receipt says, and as frames of pandas and polars."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from datetime import date, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.errors import ConfigError

if TYPE_CHECKING:
    import pandas
    import polars

SHOWN_ROWS = 50
_SHOWN_COLUMNS = 60
_SHOWN_LETTERS = 200
_NUMBERS = (int, float)


def to_pandas(rows: pa.Table) -> pandas.DataFrame:
    _require("pandas")
    return rows.to_pandas()


def to_polars(rows: pa.Table) -> polars.DataFrame:
    return _require("polars").from_arrow(rows)  # type: ignore[no-any-return]


def _require(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError:
        raise ConfigError(f"{library} is not installed", hint=f"pip install {library}, or use to_arrow()") from None


def answer_html(rows: pa.Table, is_whole: bool, receipt: Mapping[str, Any] | None) -> str:
    """The first rows as a table, and below it how many there are and how fresh they are. `is_whole`: there are no others."""
    names = rows.schema.names[:_SHOWN_COLUMNS]
    columns = [rows.column(place).slice(0, SHOWN_ROWS).to_pylist() for place in range(len(names))]
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in zip(*columns, strict=True))
    shown = min(rows.num_rows, SHOWN_ROWS)
    if is_whole and shown == rows.num_rows:
        told = [f"{shown:,} row{'' if shown == 1 else 's'}"]
    else:
        told = [f"the first {shown:,} rows" + (f" of {rows.num_rows:,}" if is_whole else "")]
    if len(names) < rows.num_columns:
        told.append(f"the first {len(names)} of {rows.num_columns} columns")
    told += [] if receipt is None else receipt_words(receipt)
    return (
        f'<table class="headgate"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f'<p class="headgate-receipt"><small>{" · ".join(map(_text, told))}</small></p>'
    )


def receipt_words(receipt: Mapping[str, Any]) -> list[str]:
    """How fresh an answer is and what it cost, in a few words each."""
    told = [f"job {receipt['job']}"]
    if receipt["data_timestamp"] is not None:
        at = datetime.fromisoformat(receipt["data_timestamp"]).isoformat(sep=" ", timespec="seconds")
        told.append(f"data of {at}, {receipt['staleness']:.3g} s stale on arrival")
    told.append("bound missed" if receipt["missed"] else "bound met")
    told.append(f"{receipt['waited']['total']:.3g} s")
    return told


def _cell(value: object) -> str:
    if isinstance(value, _NUMBERS) and not isinstance(value, bool):
        return f'<td style="text-align: right">{_text(value)}</td>'
    return f"<td>{'<i>NULL</i>' if value is None else _text(value)}</td>"


def _text(value: object) -> str:
    match value:
        case bool():
            text = str(value).lower()
        case float():
            text = (
                str(value) if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
            )
        case datetime():
            text = value.isoformat(sep=" ")
        case date():
            text = value.isoformat()
        case bytes():
            text = value[: _SHOWN_LETTERS // 2 + 1].hex()
        case _:
            text = str(value)
    return html.escape(text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}…")
