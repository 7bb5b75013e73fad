"""Parts of `genie simulate`: the choices of its options, and the words about its result."""
