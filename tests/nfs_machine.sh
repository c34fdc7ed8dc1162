#!/bin/sh
# The init of a Linux kernel that runs as a process (user-mode Linux): an NFS server and its clients on one machine.
# The disk of the host is its root, read-only. NFS_OUT: the folder of the host for what it writes; NFS_COMMAND: what to run.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mkdir -p /dev/shm /run/lib/modules /run/out /run/tmp /run/export /run/first /run/second /run/nolock /run/small
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /var/lib/nfs
mount -t hostfs -o "$NFS_OUT" none /run/out
exec >/run/out/said 2>&1
set -x

ln -s "/usr/lib/uml/modules/$(uname -r)" /run/lib/modules
for module in nfsd nfsv3 nfsv4; do modprobe -d /run "$module"; done
ip link set lo up
mount -t tmpfs tmpfs /run/export
mkdir /run/export/small
mount -t tmpfs -o size=48k tmpfs /run/export/small
mount -t nfsd nfsd /proc/fs/nfsd
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mkdir /var/lib/nfs/v4recovery
options=rw,no_root_squash,insecure,no_subtree_check
exportfs -o "$options,fsid=0" 127.0.0.1:/run/export
exportfs -o "$options,fsid=1" 127.0.0.1:/run/export/small
rpcbind -w
rpc.mountd
rpc.nfsd --host 127.0.0.1 --grace-time 10 --lease-time 10 4
mount -t nfs4 -o retry=0,nosharecache 127.0.0.1:/ /run/first
mount -t nfs4 -o retry=0,nosharecache 127.0.0.1:/ /run/second
mount -t nfs4 -o retry=0,nosharecache 127.0.0.1:/small /run/small
mount -t nfs -o retry=0,nosharecache,vers=3,nolock 127.0.0.1:/run/export /run/nolock
grep nfs /proc/mounts
set +x

export HOME=/run/tmp TMPDIR=/run/tmp PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
sh -c "$NFS_COMMAND"
echo $? >/run/out/status
halt -f -p
