#!/bin/sh
# Bytes per step of PowerSGD on ResNet-18 by rank, and of 8-bit values by the number of ranks.
set -e
for rank in 1 2 4; do
    thinwire size "ErrorFeedback(PowerSGD($rank))" --model resnet18 --ranks 4
done
for ranks in 4 16 64; do
    thinwire size int8 --model mlp --ranks "$ranks"
done
