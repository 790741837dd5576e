"""ONNX-to-ONNX optimisation by rules and passes, with each decision in the ledger.

The names exported here are the API for rules of other packages; see docs/guides/your-own-rules-and-operators.md.
"""

from opweld.rewrite.rule import Pass, Proposal, Refusal, Rule, handed_on
from opweld.rewrite.scope import Scope, attribute, operand

__all__ = ["Pass", "Proposal", "Refusal", "Rule", "Scope", "attribute", "handed_on", "operand"]
