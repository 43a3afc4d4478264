#!/bin/sh
# Study of the code of LGC: record values of three trainings, fit codes to them and measure their errors.
set -e
out=$(realpath -m "${1:-runs/lgc-code}")
cd "$(dirname "$0")"
mkdir -p "$out"
python study.py collect --workload cifar10-resnet20 --ranks 4 --batch 32 --steps 460 --dense 40 --seed 1 --out "$out/resnet20.pt"
python study.py collect --workload cifar10-resnet18 --ranks 4 --batch 16 --steps 110 --dense 10 --seed 1 --out "$out/resnet18.pt"
python study.py collect --workload camvid-pspnet --ranks 4 --batch 4 --steps 90 --dense 20 --seed 1 --out "$out/camvid.pt"
python study.py study "$out/resnet20.pt" --learn 300 --out "$out"
python study.py study "$out/camvid.pt" --learn 50 --passes 4 --out "$out"
python study.py study "$out/resnet18.pt" --learn 70 --passes 2 --out "$out"
