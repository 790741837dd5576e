"""What other weights of a trained model are chosen by: samples, the values that they give, errors at the outputs."""
