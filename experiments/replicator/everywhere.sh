#!/usr/bin/env bash
# Run one unchanged script in five settings with four methods; prints the last line of each run.
# Needs root for the two hosts: network namespaces joined by a veth cable, with torchrun in each.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
script=examples/classifier.py steps=${1:-100}
bin=$PWD/.venv/bin

two_hosts() {
    trap 'ip netns delete thinwire-a; ip netns delete thinwire-b' RETURN
    for host in a b; do
        ip netns add thinwire-$host
        ip -n thinwire-$host link set lo up
    done
    ip link add eth-a netns thinwire-a type veth peer name eth-b netns thinwire-b
    ip -n thinwire-a address add 10.213.78.1/24 dev eth-a
    ip -n thinwire-b address add 10.213.78.2/24 dev eth-b
    ip -n thinwire-a link set eth-a up
    ip -n thinwire-b link set eth-b up
    local rank=0 host hosts=()
    for host in a b; do
        GLOO_SOCKET_IFNAME=eth-$host ip netns exec thinwire-$host "$bin/torchrun" --nnodes 2 --nproc-per-node 2 \
            --node-rank $rank --master-addr 10.213.78.1 --master-port 29533 $script --steps "$steps" &
        hosts+=($!) rank=1
    done
    for host in "${hosts[@]}"; do
        wait "$host"  # fails if the host failed
    done
}

for method in dense adacomp powergossip diloco; do
    export THINWIRE_METHOD=$method
    printf '%s\n  one replica, one process:    ' $method
    "$bin/python" $script --steps "$steps" 2>/dev/null
    printf '  four in a plain process:     '
    "$bin/python" $script --steps "$steps" --replicas 4
    printf '  four simulated ranks:        '
    "$bin/thinwire" run $script --ranks 4 --transport simulated --method $method -- --steps "$steps"
    printf '  four gloo processes:         '
    "$bin/thinwire" run $script --ranks 4 --method $method -- --steps "$steps"
    printf '  two hosts under torchrun:    '
    two_hosts
done
