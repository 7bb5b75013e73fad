"""Commands on files of results."""
