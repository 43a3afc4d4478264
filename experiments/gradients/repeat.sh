#!/bin/sh
# The distribution of captured gradients, and bits per entry under it, for three quantizers.
set -e
out=${1:-runs/gradients}
capture() {
    task=$1
    shift
    thinwire train --workload "$task" --method dense --ranks 2 --transport simulated --capture 4 --out "$out/$task" "$@"
    for form in fp8-152 fp4-121 int8; do
        thinwire fit "$out/$task" --form "$form" | tee "$out/$task/$form.txt"
        thinwire fit "$out/$task" --form "$form" --json > "$out/$task/$form.json"
    done
}

capture cifar10-resnet20 --steps 250
capture cifar10-resnet18 --steps 30 --evaluations 1
capture shakespeare-lstm --steps 300
