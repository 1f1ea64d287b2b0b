#!/usr/bin/env bash
# Under which conditions is a drawn car not recognised? A network learns drawn objects, a probe reads mobilenetv1_050's
# features; both predict 50 images of all 1,008 subdomains. Then two searches of a part, and the page, which compares
# policies on the table of all. Resumes.
#   WEIGHTS=.../mobilenetv1_050.safetensors OUT=outputs/failure_search bash experiments/failure_search/rendered_study.sh
# Shrunk, for a first look: IMAGES=2 TRAIN=60 EPOCHS=3 PARTS=20
set -euo pipefail
: "${WEIGHTS:?file with the weights of mobilenetv1_050}" "${OUT:=outputs/failure_search}"
: "${IMAGES:=50}" "${TRAIN:=600}" "${EPOCHS:=30}" "${PARTS:=300 60}" "${SEED:=0}"
export OMP_NUM_THREADS=1
attributes="color,light,occlusion,position,quality,rotation,size,style,texture,view,background"
objects="dataset=rendered dataset.size=64 dataset.per_level=2 dataset.train_per_class=$TRAIN"
objects="$objects dataset.attributes=[$attributes] dataset.train_levels=[easy,medium,hard]"
run() { fca run "outputs=$OUT" logger=none "seed=$SEED" "$@"; }
trained() { fca results --outputs "$OUT" --query "task == 'train' and model == '$1'" --columns run_id --format csv | tail -1; }

run $objects model=test_resnet model.input_size=64 "recipe.epochs=$EPOCHS" recipe.flip=true recipe.scale_min=0.3 recipe.mixup=0.2
run $objects model=mobilenetv1_050 "model.weights=$WEIGHTS" adaptation=probe
search="$objects experiment=rendered_failures task.images=[$IMAGES]"
search="$search model.run_id=$(trained test_resnet) task.second.run_id=$(trained mobilenetv1_050)"

run $search
for part in $PARTS; do
  run $search task.policy=gp_pairwise "task.max_subdomains=$part" task.confirm=10
done
fca report report=failure_search "outputs=$OUT" logger=none
