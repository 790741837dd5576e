"""The domain of these operators."""

DOMAIN = "opweld.decoder"
