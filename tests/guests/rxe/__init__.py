"""Virtual machines with Debian's kernel and its soft-RoCE device, on a network of their own: see README.md."""
