"""What a prediction is worth: calls, answers, intervals and paired tests; no model inside."""
