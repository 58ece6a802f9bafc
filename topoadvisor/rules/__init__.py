"""Rules over facts: the vocabulary, the facts of one machine, the rule files and the engine."""
