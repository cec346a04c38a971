"""Notes -> ids of the 390 events -> a tokens folder on disk -> batches for a training."""
