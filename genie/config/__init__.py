"""Files that people write: units, TOML read strictly with the line of each mistake, and hosts files."""
