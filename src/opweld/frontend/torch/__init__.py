"""The importer of PyTorch's graphs: functional ATen, as `torch.export` and AOTAutograd make them."""
