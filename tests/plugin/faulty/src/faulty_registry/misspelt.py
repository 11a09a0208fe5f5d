compile("def make_registry(", "misspelt", "exec")
