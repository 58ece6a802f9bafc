"""Files of each kind → the variables that they set."""
