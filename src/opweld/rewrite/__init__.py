"""From an ONNX graph to one that gives the same with less: rules and passes, each decision in the ledger.

What is named here is for rules of other packages; docs/guides/your-own-rules-and-operators.md says how.
"""

from opweld.rewrite.rule import Pass, Proposal, Refusal, Rule, handed_on
from opweld.rewrite.scope import Scope, attribute, operand

__all__ = ["Pass", "Proposal", "Refusal", "Rule", "Scope", "attribute", "handed_on", "operand"]
