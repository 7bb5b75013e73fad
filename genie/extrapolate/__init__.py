"""One GPU's trace of a training step, extrapolated to other batches, GPUs and numbers of GPUs."""
