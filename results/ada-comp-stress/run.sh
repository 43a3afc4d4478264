#!/bin/sh
# AdaComp under stress, on a task that needs no data set: large bins, many learners, small and large batches. Beside it
# plain local selection (factor 1) and top-k at fixed rates. A dozen seconds a run; what was run already is kept.
set -e
out=${1:-runs/ada-comp-stress}
stress() {
    folder=$1
    shift
    thinwire compare --out "$out/$folder" --workload digits-cnn --transport simulated --quiet "$@"
}

stress bins --ranks 8 --methods dense \
    'AdaComp(50)' 'AdaComp(500)' 'AdaComp(2000)' 'AdaComp(8000)' \
    'AdaComp(50, factor=1.0)' 'AdaComp(500, factor=1.0)' 'AdaComp(2000, factor=1.0)' 'AdaComp(8000, factor=1.0)' \
    'Feedback(TopK(0.05))' 'Feedback(TopK(0.01))' 'Feedback(TopK(0.002))' 'Feedback(TopK(0.0005))'
for ranks in 1 2 4 8 16 32; do
    stress "learners-$ranks" --ranks "$ranks" --batch 128 \
        --methods dense 'AdaComp()' 'AdaComp(factor=1.0)' 'Feedback(TopK(0.005))'
done
for batch in 32 128 512; do
    stress "batch-$batch" --ranks 8 --batch "$batch" --steps 224 \
        --methods dense 'AdaComp()' 'AdaComp(factor=1.0)' 'Feedback(TopK(0.005))'
done
