"""`fencekit_doctor`, `fencekit_reseed` and `fencekit_prune`."""
