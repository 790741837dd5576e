"""Random graphs of quantised values, and what is right of them: whoever rounds is compared by steps of its scale."""
