"""From an ONNX graph to one that gives the same with less: rules and passes, each decision in the ledger."""
