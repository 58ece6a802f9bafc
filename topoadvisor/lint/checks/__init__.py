"""What is wrong with a line, by the name, the value, the place, its company, the ranks and the machine."""
