"""A front end that makes a graph: operators are shared by name, whatever the format, and others are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from opweld.accounts import account_of
from opweld.build.cache import Cache
from opweld.cached import compile_model
from opweld.compile import Model
from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.program import Program
from opweld.frontends import FRONT_ENDS, graph, source_of
from opweld.frontends.source import Source
from opweld.interface import ModelMetadata
from opweld.ir import Graph, Node, Stored, Value
from opweld.ledger import Ledger
from opweld.operators import Fact, Inference, Lowering, attribute, const, define, infers, lowers, mul, required
from opweld.options import Options
from opweld.record import FileNode
from opweld.stages import Stage
from opweld.tensor.dtype import DType
from opweld.verification.check import Check
from tests.unit.packages import registrations

WEIGHTS = np.random.default_rng(3).standard_normal((6, 5)).astype(np.float32)
"""Of a product."""


def traced(*, operator: str = "Softmax", axis: Any = -1) -> Graph:
    """As an importer of another format makes it: x @ weights, twice that, and its softmax; one node is of a domain of
    its own, the others say what ONNX's do."""
    x, w = Value("x", DType.F32, ("rows", 6)), Value("weights", stored=Stored.of(WEIGHTS))
    product, twice, y = Value("mm"), Value("twice"), Value("y")
    nodes = [
        Node("MatMul", [x, w], [product], name="layers.0.mm"),
        Node("scaled", [product], [twice], {"by": 2.0}, domain="traced", name="layers.0.scaled"),
        Node(operator, [twice], [y], {"axis": axis}, name="layers.1"),
    ]
    return Graph([x], [y], nodes, [w], "traced")


class Traced(Source):
    """A model of a made-up format."""

    def __init__(self, made: Graph) -> None:
        self.graph = made

    def digest(self, cache: Cache) -> str:
        return repr([(node.op_type, node.attributes) for node in self.graph])

    def read(self, options: Options, ledger: Ledger, stage: Stage) -> Program:
        return graph.graph_program(
            self.graph,
            options,
            ledger,
            stage,
            metadata=ModelMetadata(producer="tracer", graph="traced"),
            nodes=tuple(
                FileNode(node.name, node.op_type, (), tuple(v.name for v in node.outputs), called=(node.name,))
                for node in self.graph
            ),
        )

    def check(
        self, feeds: Mapping[str, Any], names: Sequence[str], outputs: Sequence[Any], rtol: Any, atol: Any
    ) -> Check:
        raise UnsupportedError("nobody knows")


@pytest.fixture(autouse=True)
def scaled() -> Any:
    """The operator of the made-up format."""
    with registrations():

        @infers("scaled", domain="traced")
        def infer(scope: Inference, node: Node) -> list[Fact]:
            return [scope.fact(required(node, 0))]

        @lowers("scaled", domain="traced")
        def lower(scope: Lowering, node: Node) -> None:
            x, by = required(node, 0), const(attribute(node, "by", 1.0), DType.F32)
            define(scope, node.outputs[0], lambda at: mul(scope.load(x, at), by))

        yield


def test_a_graph_of_any_format_goes_through_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    def traced_source(model: object) -> Source | None:
        return Traced(model) if isinstance(model, Graph) else None

    monkeypatch.setattr("opweld.frontends.FRONT_ENDS", (traced_source, *FRONT_ENDS))
    source = source_of(traced())
    assert isinstance(source, Traced)
    model = Model(compile_model(source, Options(threads=1)), 1)
    assert [(info.name, info.shape) for info in model.inputs] == [("x", ("rows", 6))]
    assert model.outputs[0].shape == ("rows", 5)
    for rows in (1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)
        powers = np.exp(2 * (x.astype(np.float64) @ WEIGHTS))
        np.testing.assert_allclose(model.run({"x": x})["y"], powers / powers.sum(-1, keepdims=True), rtol=1e-4)
    record = account_of(model.path).record
    assert [node.name for node in record.nodes if node.reached] == ["layers.0.mm", "layers.0.scaled", "layers.1"]
    assert model.session.manifest.metadata.producer == "tracer"


@pytest.mark.parametrize(
    ("changed", "error"), [({"operator": "Hardmaxx"}, UnsupportedError), ({"axis": 7}, ModelError)]
)
def test_errors_name_the_node_by_its_own_name(changed: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"layers\.1"):
        compile_model(Traced(traced(**changed)), Options(threads=2))


def test_a_copied_body_has_values_of_its_own_and_reads_what_is_around_it() -> None:
    outer, inner = Value("outer"), Value("inner")
    innermost = Graph([], [inner], [])
    body = Graph([inner], [outer], [Node("If", [inner], [Value("y")], {"then_branch": innermost, "axis": (1, 2)})])
    copy = body.copied()
    (node,) = copy.nodes
    assert copy.outputs == (outer,) and copy.inputs[0] is not inner and copy.inputs[0].is_input
    assert node.bodies[0].outputs == (copy.inputs[0],) and node.attributes["axis"] == (1, 2)
    assert [n.op_type for n in copy.all_nodes] == ["If"] and list(copy.subgraphs) == list(node.bodies)
