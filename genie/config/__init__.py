"""Configuration files: units, strict TOML whose errors name the line, hosts files and NCCL's variables."""
