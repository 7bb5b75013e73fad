"""A convolutional network under DistributedDataParallel: batch norms have buffers."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
parts = (
    nn.Conv2d(3, 256, 3, bias=False),
    nn.BatchNorm2d(256),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
)
model = DistributedDataParallel(nn.Sequential(*parts, nn.Linear(256, 2000)).to(device), device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(5):
    images, labels = torch.randn(8, 3, 32, 32).cuda(), torch.randint(2000, (8,)).to("cuda", non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(float(loss))
