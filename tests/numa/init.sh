#!/bin/busybox sh
# The first process of a guest: mounts what programs expect, runs the case, and powers off whatever
# it came to. A case writes sections; what it prints otherwise goes to the console.
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /proc /sys /dev /run /tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
exec </dev/null >/dev/console 2>&1
stty -F /dev/ttyS1 raw -echo
exec 3>/dev/ttyS1

export PINSERVE_SOCKET=/tmp/s

# section NAME COMMAND...: a section of the report with what the command prints.
section() {
    echo "== $1" >&3
    shift
    "$@" >&3 2>&1
    echo >&3
}

# serve NAME [--in CGROUP] [--by PROGRAM] SETTING...: a daemon, started by the program if one is
# given; false when it did not come up.
serve() {
    name=$1
    shift
    cgroup=/sys/fs/cgroup
    by=
    if [ "$1" = --in ]; then
        cgroup=/sys/fs/cgroup/$2
        shift 2
    fi
    if [ "$1" = --by ]; then
        by=$2
        shift 2
    fi
    settings="--set pool.region=8MiB"
    for setting in "$@"; do
        settings="$settings --set $setting"
    done
    (
        echo 0 >"$cgroup/cgroup.procs"
        exec $by pinserved $settings
    ) >/tmp/log 2>&1 &
    daemon=$!
    while ! pinctl status >/dev/null 2>&1; do
        kill -0 $daemon 2>/dev/null || return 1
        usleep 50000
    done
}

# trial NAME [--in CGROUP] SETTING...: a daemon that feeds a bench, and its end.
trial() {
    serve "$@" && feed
    finish
}

# Ends the daemon; its exit status and its log are sections.
finish() {
    kill $daemon 2>/dev/null
    wait $daemon
    section "$name.exit" echo $?
    section "$name.log" cat /tmp/log
}

# A line a thread: its name, the CPUs that it may use.
threads() {
    for task in /proc/$daemon/task/*; do
        cpus=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' $task/status)
        echo "$(cat $task/comm) $cpus"
    done 2>/dev/null
}

# What the kernel and the daemon say while it serves.
observe() {
    section "$name.maps" grep pinserve-region /proc/$daemon/numa_maps
    section "$name.threads" threads
    for what in pools devices status; do
        section "$name.$what" pinctl --json $what
    done
    section "$name.table" env COLUMNS=400 pinctl pools
    section "$name.plugin" grep -c hwloc_pci.so /proc/$daemon/maps
}

# feed [OPTION...]: a bench of 20 MB in 4 slots, observed while batches come.
feed() {
    pinctl --json bench --source synthetic:3x224x224:u8:4096 --batch 32 --device host \
        --seconds 1 "$@" >/tmp/bench 2>&1 &
    bench=$!
    until pinctl --json jobs | grep -q '"delivered": [1-9]'; do
        kill -0 $bench 2>/dev/null || break
        usleep 50000
    done
    observe
    wait $bench
    section "$name.bench.exit" echo $?
    section "$name.bench" cat /tmp/bench
}

. /case.sh
section end true
sync
poweroff -f
