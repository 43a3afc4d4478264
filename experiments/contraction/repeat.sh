#!/bin/sh
# Error against bits: on gradients of ResNet-18 and VGG-16, on samples of three distributions, and of the unbiased counterparts.
set -e
out=${1:-runs/contraction}
mkdir -p "$out"
for task in cifar10-resnet18 cifar10-vgg16; do
    thinwire train --workload "$task" --method dense --ranks 4 --transport simulated --capture 3 --out "$out/captured/$task"
    thinwire contraction --on "$out/captured/$task" --draws 10 --out "$out/$task" | tee "$out/$task.txt"
done
thinwire contraction --draws 10 --out "$out/distributions" | tee "$out/distributions.txt"
thinwire contraction --on "$out/captured/cifar10-resnet18" --draws 3 --out "$out/counterparts" \
    "Chain(TopK(0.01), Round(), Entropy())" "Chain(RandomK(0.0275, unbiased=True), NaturalCompression(), Entropy())" \
    "Chain(TopK(0.01), ExponentialDither(block=512))" "Chain(RandomK(0.031, unbiased=True), ExponentialDither(block=512))" \
    "Sign()" "Chain(Dither(1, norm='max', block=512), Entropy())" "Chain(Round(), Entropy())" \
    "Chain(NaturalCompression(), Entropy())" "Quantize(4)" "Quantize(4, stochastic=True)" | tee "$out/counterparts.txt"
