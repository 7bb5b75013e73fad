#!/bin/busybox sh
# The first program of a guest, in its initial file system: mounts the disk and hands over to the agent.
/bin/busybox mkdir -p /proc /disk
/bin/busybox mount -t proc proc /proc
for module in /modules/*; do /bin/busybox insmod "$module"; done
for _ in 1 2 3 4 5 6 7 8 9 10; do
  /bin/busybox grep -q vda /proc/partitions && break
  /bin/busybox sleep 0.1
done
/bin/busybox mkdir -p /dev
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t ext4 /dev/vda /disk || exec /bin/busybox poweroff -f
/bin/busybox mount -t tmpfs tmpfs /disk/run
/bin/busybox mkdir /disk/run/genie
/bin/busybox cp /genie/* /disk/run/genie/
/bin/busybox mount --move /dev /disk/dev
/bin/busybox mount --move /proc /disk/proc
exec /bin/busybox switch_root /disk /run/genie/guest_start.sh
