"""What test code sees: the names of ``thinkingbox.common``, as classes of ours that work inside a grading process."""
