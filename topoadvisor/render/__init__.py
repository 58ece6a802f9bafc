"""From a topology and its advice to what people look at: matrices, reports, pictures."""
