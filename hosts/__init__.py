"""Places where ranks run: hosts files, fabric files, and the lab. `hosts/rxe` is a tool beside it."""
