"""What is computed from a topology: ring orders."""
