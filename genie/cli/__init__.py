"""The command line: parses arguments, calls the rooms, prints; nothing imports it."""
