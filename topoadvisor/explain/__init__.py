"""What a word means: a variable, a rule, a term of the field, a fact."""
