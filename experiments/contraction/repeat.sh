#!/bin/sh
# Error against bits: on gradients of ResNet-18 and VGG-16, on numbers of three laws, and of the unbiased twins.
set -e
out=${1:-runs/contraction}
mkdir -p "$out"
for task in cifar10-resnet18 cifar10-vgg16; do
    thinwire train --workload "$task" --method dense --ranks 4 --transport simulated --capture 3 --out "$out/captured/$task"
    thinwire contraction --on "$out/captured/$task" --draws 10 --out "$out/$task" | tee "$out/$task.txt"
done
thinwire contraction --draws 10 --out "$out/laws" | tee "$out/laws.txt"
