"""Holds what commands write as JSON beside the schemas of docs/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

DOCS = Path(__file__).parents[1] / "docs"


def schema_of(command: str) -> dict[str, Any]:
    """The schema of what a command writes; it is one itself."""
    schema = json.loads((DOCS / f"{command}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def faults(command: str, data: Any) -> list[str]:
    """What is wrong with the JSON of a command, a sentence each."""
    found = jsonschema.Draft202012Validator(schema_of(command)).iter_errors(data)
    return [f"{error.json_path}: {error.message}" for error in found]


def loose_objects(schema: Any, where: str = "$") -> list[str]:
    """Where a schema says of an object neither which fields it has nor of what kind they are."""
    found: list[str] = []
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "additionalProperties" not in schema:
            found.append(where)
        for key, value in schema.items():
            found += loose_objects(value, f"{where}.{key}")
    elif isinstance(schema, list):
        for number, value in enumerate(schema):
            found += loose_objects(value, f"{where}[{number}]")
    return found
