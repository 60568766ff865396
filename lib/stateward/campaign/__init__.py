"""The stages as what `jobs/` calls: they join difficulty, training, evaluation and cluster into one campaign."""
