"""What GPUs, links and CPUs are capable of."""
