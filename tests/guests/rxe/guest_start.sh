#!/bin/sh
# Process 1 of a guest. The rig configures network and devices through the agent, which this starts.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
modprobe -a virtio_console virtio_net
ip link set lo up
/usr/bin/python3 -I -S /run/genie/guest_agent.py
echo "genie: the agent ended"
exec busybox poweroff -f
