"""RoCEv2 in user space over UDP: needs no RDMA hardware, no kernel module and no root."""
