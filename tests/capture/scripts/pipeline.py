"""Four stages of torch.distributed.pipelining, with static shapes, in two replicas."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

STAGES = 4
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (dist.get_world_size() // STAGES, STAGES), mesh_dim_names=("dp", "pp"))
own = mesh["pp"].get_local_rank()
layers = nn.Sequential(*[nn.Linear(256, 256) for _ in range(3)]).to("cuda")
given = torch.randn(2, 256, device="cuda", requires_grad=own > 0)
made = torch.randn(2, 256, device="cuda", requires_grad=True)
stage = PipelineStage(
    layers, own, STAGES, torch.device("cuda"), input_args=(given,), output_args=(made,), group=mesh["pp"].get_group()
)
schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=lambda out, target: ((out - target) ** 2).mean())
optimizer = torch.optim.SGD(layers.parameters(), 0.1)
for _ in range(4):
    batch = torch.randn(16, 256, device="cuda")
    if own == 0:
        schedule.step(batch)
    elif own == STAGES - 1:
        schedule.step(target=batch)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
