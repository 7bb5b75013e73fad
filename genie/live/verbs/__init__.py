"""Any RDMA device by libibverbs: hardware NICs and the kernel's rdma_rxe. Needs pyverbs."""
