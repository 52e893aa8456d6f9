"""Mappings as TOML: a section for each table, and in it a line for each key, in their order.

Order says which axis of a sweep turns fastest; the libraries that write TOML put tables behind
values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any


def dumps(mapping: Mapping[str, Any]) -> str:
    """The text of a file. A key of ``None`` is not there."""
    values = {key: one for key, one in mapping.items() if not isinstance(one, Mapping)}
    lines = _keys(values)
    for key, table in mapping.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{_key(key)}]", *_keys(table)]
    return "\n".join(lines) + "\n"


def _keys(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_spread(one)}" for key, one in table.items() if one is not None]


def _spread(value: Any) -> str:
    """A list of tables has a line for each of them, so that errors tell which."""
    if isinstance(value, (list, tuple)) and any(isinstance(one, Mapping) for one in value):
        return "[\n" + "".join(f"    {_value(one)},\n" for one in value) + "]"
    return _value(value)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is one of TOML, but for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        keys = [f"{_key(key)} = {_value(one)}" for key, one in value.items() if one is not None]
        return "{ " + ", ".join(keys) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"a scenario has text, numbers, lists and mappings, not {value!r}")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a scenario's keys are text, not {key!r}")
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)
