"""Fabrics: the file's schema and checks, the network of nodes and links, routes, queues and faults."""
