"""Built-in operators as kernels compute them, in plain PyTorch: rows in tiles, backwards by hand. Mutants are edits of them."""
