"""Read and write results: NAME.json, and NAME.npz for arrays above 1 MB in all.

The JSON is strict: NaN is written as null. Fields with a default may be missing.
"""

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import capsviz
from capsviz import analysis as contract
from capsviz.files import write_bytes, write_text
from capsviz.statistics.estimate import FIELDS, Estimate

INLINE_BYTES = 1_000_000
NO_RESULT = "'{}' is not a result of capsviz: expected the JSON beside a figure"


def check_fields(result: NamedTuple) -> None:
    """Raise ValueError if `write_result` cannot write a field; the message names the field."""
    for name, value in result._asdict().items():
        try:
            to_json(_encode(value.ravel()[:1] if isinstance(value, np.ndarray) else value))
        except TypeError as error:
            kind = type(value).__name__
            raise ValueError(f"JSON cannot hold the field '{name}', a {kind}: {error}") from error


def write_result(stem: Path, result: NamedTuple, about: Mapping) -> list[Path]:
    """Write a result to `stem.json`, and large arrays to `stem.npz`; the JSON has its digest."""
    fields = result._asdict()
    arrays: dict[str, Any] = {k: v for k, v in fields.items() if isinstance(v, np.ndarray)}
    large = sum(a.nbytes for a in arrays.values()) > INLINE_BYTES
    beside = stem.with_name(f"{stem.name}.npz")
    paths = [stem.with_name(f"{stem.name}.json")]
    if large:
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        about = {**about, "npz_sha256": hashlib.sha256(content.getvalue()).hexdigest()}
        write_bytes(beside, content.getvalue())
        paths.insert(0, beside)
    values = {
        name: {"npz": name} if large and name in arrays else _encode(value)
        for name, value in fields.items()
    }
    text = to_json({"capsviz": capsviz.__version__, **about, "result": values})
    write_text(paths[-1], text + "\n")
    if not large:
        beside.unlink(missing_ok=True)  # of an earlier, larger result
    return paths


def read_result(path: Path) -> tuple[NamedTuple, dict]:
    """Return a result and its metadata; ValueError for a file without a result."""
    path = Path(path)
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ValueError(f"there is no file '{path}'") from error
    except ValueError as error:
        raise ValueError(NO_RESULT.format(path)) from error
    return parse_result(about, path)


def parse_result(about: Any, path: Path) -> tuple[NamedTuple, dict]:
    """Return the result and metadata of a parsed JSON document; its arrays are beside `path`.

    The result is removed from `about`.
    """
    try:
        analysis, name, values = about["analysis"], about["kind"], dict(about.pop("result"))
        about["width"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(NO_RESULT.format(path)) from error
    kind: Any = {one.Result.__name__: one.Result for one in contract.of(analysis)}.get(str(name))
    arrays = _read_arrays(path, about["npz_sha256"]) if "npz_sha256" in about else {}
    try:
        values = {name: _decode(value, arrays) for name, value in values.items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"'{path}' is damaged ({type(error).__name__}: {error})") from error
    for name, hint in getattr(kind, "__annotations__", {}).items():
        if values.get(name, 0) is not None or "None" in (expected := _name(hint)):
            continue
        if expected != "float":
            raise ValueError(f"'{path}' is damaged: {name} is empty, expected {expected}")
        values[name] = math.nan
    fields = set(getattr(kind, "_fields", ()))
    missing = fields - set(values) - set(getattr(kind, "_field_defaults", ()))
    if not fields or missing or set(values) - fields:
        raise ValueError(f"'{path}' was made by another version of '{analysis}': run it again")
    return kind(**values), about


def _name(hint) -> str:
    """Return a field's type as text, with or without postponed annotations."""
    return str(getattr(hint, "__forward_arg__", None) or getattr(hint, "__name__", hint))


def to_json(values) -> str:
    """Return strict JSON: arrays become lists, an estimate the dict of its parts, NaN null."""
    return json.dumps(_plain(values), allow_nan=False)


def _plain(value):
    if isinstance(value, float):  # by far the most common type, so first
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Estimate):
        parts = {name: getattr(value, name) for name in FIELDS}
        return {name: _plain(part) for name, part in parts.items() if part is not None}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value) if isinstance(value, Path) else value


def _encode(value):
    if isinstance(value, Estimate):
        parts = {name: getattr(value, name) for name in FIELDS}
        empty = {name for name in ("runs", "between") if parts.get(name) is None}
        return {"estimate": {k: _encode(part) for k, part in parts.items() if k not in empty}}
    if isinstance(value, np.ndarray):
        flat = value.ravel()
        # str() of a float32 is its shortest exact form, half the digits of the double
        data = [float(str(v)) for v in flat] if value.dtype == np.float32 else flat.tolist()
        return {"dtype": str(value.dtype), "shape": list(value.shape), "data": data}
    if isinstance(value, Mapping):
        return {name: _encode(one) for name, one in value.items()}
    if hasattr(value, "_asdict"):
        return _encode(value._asdict())
    if isinstance(value, list | tuple):
        return [_encode(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def _decode(value, arrays: Mapping[str, np.ndarray]):
    if isinstance(value, list):
        return [_decode(one, arrays) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"npz"}:
        return arrays[value["npz"]]
    if set(value) == {"estimate"}:
        parts = {name: _decode(part, arrays) for name, part in value["estimate"].items()}
        return Estimate(**parts)
    if set(value) == {"dtype", "shape", "data"}:
        numbers = value["data"]
        if np.issubdtype(np.dtype(value["dtype"]), np.floating):
            numbers = [math.nan if number is None else number for number in numbers]
        return np.array(numbers, value["dtype"]).reshape(value["shape"])
    return {name: _decode(one, arrays) for name, one in value.items()}


def _read_arrays(path: Path, digest: str) -> dict[str, np.ndarray]:
    beside = path.with_suffix(".npz")
    try:
        content = beside.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"'{beside}' is damaged or of another run than '{path.name}'")
        with np.load(io.BytesIO(content)) as stored:
            return dict(stored)
    except FileNotFoundError as error:
        raise ValueError(f"'{path}' needs {beside.name} beside it") from error
    except zipfile.BadZipFile as error:
        raise ValueError(f"'{beside}' is damaged") from error
