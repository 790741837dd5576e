"""What `--json` writes is what the schema in docs says."""

from __future__ import annotations

import json
from typing import Any

from opweld.account.data import account_json
from opweld.account.outcomes import MEANINGS
from tests.schemas import DOCS, faults, loose_objects, schema_of
from tests.unit.account.compiled import NODES, account


def written() -> Any:
    told = account()
    return json.loads(json.dumps(account_json(told, "mlp.onnx", NODES, told.ledger), allow_nan=False))


def test_it_fits_the_schema() -> None:
    data = written()
    assert faults("explain", data) == []
    assert all(data[part] for part in schema_of("explain")["required"]), "an empty part would say nothing"
    assert set(schema_of("explain")["properties"]["nodes"]["items"]["properties"]["outcome"]["enum"]) == set(MEANINGS)
    assert data["near_misses"][0]["places"][0] == {
        "id": data["near_misses"][0]["places"][0]["id"],
        "nodes": ["add", "norm"],
        "sources": ["", "model.py:9"],
    }
    assert data["kernels"][0]["schedule"] == "contraction height=2"
    flat = next(node for node in data["nodes"] if node["name"] == "flat")
    assert flat["kernels"] == [{"variant": "main", "name": "k1_contraction"}]


def test_every_schema_says_all_of_its_objects() -> None:
    schemas = [path.name.partition(".")[0] for path in DOCS.glob("*.schema.json")]
    assert "explain" in schemas
    for command in schemas:
        assert loose_objects(schema_of(command)) == [], command
        assert faults(command, {}), "what is missing is refused"
